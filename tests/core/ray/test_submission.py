"""What is submitted to Ray, and what a user may not have Ray's client read on our side."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from gpu_recovery.core.ray.submission import local_path_field, submission_of

from tests.core.ray.build import placed, queued


def test_the_submission_is_called_like_the_attempt() -> None:
    """Seed 004: `<task_id>--a01`; asking twice can then do no harm."""
    assert submission_of(placed(queued("ppo-7"))).submission_id == "ppo-7--a01"


def test_a_driver_goes_to_a_worker_unless_the_user_says_otherwise() -> None:
    """The head has no GPUs and runs no training; only workers have the resource."""
    assert submission_of(placed()).resources == {"worker_node": 1}
    assert submission_of(placed(queued(entrypoint_resources={"big": 2}))).resources == {"big": 2}


def test_the_driver_has_the_variables_of_a_rank_on_top_of_its_own() -> None:
    """Those of the runtime_env, then the job's, then ours, which nobody else can set."""
    named = json.dumps({"env_vars": {"A": "1", "B": "1", "JOB_ID": "x"}, "working_dir": "s3://b/k.zip"})
    order = submission_of(placed(queued(runtime_env=named, env={"B": "2"}, checkpoint_dir="/ckpt")))
    assert order.runtime_env["working_dir"] == "s3://b/k.zip"
    assert order.runtime_env["env_vars"] == {
        "A": "1",
        "B": "2",
        "JOB_ID": "ppo-1",
        "ATTEMPT": "1",
        "NNODES": "1",
        "GPUS_PER_NODE": "8",
        "CHECKPOINT_DIR": "/ckpt",
    }


def test_an_image_is_what_driver_and_workers_run_in() -> None:
    """Ray's own client takes it together with the variables."""
    order = submission_of(placed(queued(image="me/ray:1", env={"B": "2"})))
    assert order.runtime_env["image_uri"] == "me/ray:1" and order.runtime_env["env_vars"]["B"] == "2"
    assert "image_uri" not in submission_of(placed(queued())).runtime_env


def test_each_attempt_is_a_submission_of_its_own() -> None:
    """Ray would take a second submit of the same id for the first one."""
    assert submission_of(replace(placed(), attempt=2)).submission_id == "ppo-1--a02"


@pytest.mark.parametrize(
    ("runtime_env", "field"),
    [
        ({"working_dir": "/var/task"}, "working_dir"),
        ({"working_dir": "."}, "working_dir"),
        ({"working_dir": "file:///etc"}, "working_dir"),
        ({"py_modules": ["s3://b/a.whl", "/var/task"]}, "py_modules"),
        ({"py_modules": [7]}, "py_modules"),
        ({"pip": "/etc/passwd"}, "pip"),
        ({"pip": {"packages": "/etc/passwd"}}, "pip"),
        ({"uv": "requirements.txt"}, "uv"),
        ({"conda": "/tmp/environment.yml"}, "conda"),
        ({"conda": "environment.yaml"}, "conda"),
        ({"working_dir": "s3://b/a.zip", "py_modules": ["https://h/x.whl"], "pip": ["x==1"]}, ""),
        ({"conda": "an-environment-of-the-cluster", "env_vars": {"A": "1"}}, ""),
        ({"conda": {"dependencies": ["pip"]}, "pip": {"packages": ["x"]}}, ""),
        ({}, ""),
    ],
)
def test_nothing_is_read_from_the_disk_of_whoever_submits(runtime_env: dict[str, Any], field: str) -> None:
    """Ray's client packs a local folder and opens a local file: a user must not get at those of a function."""
    assert local_path_field(runtime_env) == field
