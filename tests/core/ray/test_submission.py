"""What is submitted to Ray, and what a user may not have Ray's client read on our side."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from gpu_recovery.core.ray.submission import refused_field, submission_of

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
        *(
            ({"working_dir": value}, "working_dir")
            for value in (
                *(
                    "",
                    ".",
                    "..",
                    " ",
                    "/var/task",
                    "code.zip",
                    "~/code",
                    "C:\\code",
                    "%2fvar",
                    "\x00",
                    7,
                    {},
                    ["s3://b/a"],
                ),
                *("file:///etc", "FILE:///etc", "file:/etc", "local:///var/task", "gcs://_ray_pkg_1.zip", "x://../"),
                *("http://h/a.zip", "hdfs://h/a.zip", "conda://a", "S3://b/a.zip", " s3://b/a.zip", "s3:/b/a.zip"),
                *(
                    "s3://",
                    "s3:///a.zip",
                    "https://[h/a.zip",
                    "https://h/a b.zip",
                    "https://h/a\n",
                    "https://\u2100/a.zip",
                ),
                "https://../../etc",
            )
        ),
        *(({"py_modules": value}, "py_modules") for value in ("", ".", "s3://b/a.whl", [""], ["."], [7], [None], True)),
        ({"py_modules": ["s3://b/a.whl", "/var/task"]}, "py_modules"),
        ({"java_jars": ["/var/task/a.jar"]}, "java_jars"),
        *(
            ({name: value}, name)
            for name in ("pip", "uv")
            for value in ("", ".", "/etc/passwd", "requirements.txt", [7], {}, {"packages": "/etc/passwd"}, True)
        ),
        *(
            ({"conda": value}, "conda")
            for value in ("", "/opt/conda", "../x", "/tmp/environment.yml", "environment.yaml", "e.YML", ["a"], 7)
        ),
        *(
            ({"container": value}, "container")
            for value in (
                {"image": "me/ray:1", "run_options": ["--privileged", "-v", "/:/host"]},
                {"image": "me/r"},
                {},
            )
        ),
        *(({"image_uri": value}, "image_uri") for value in ("", "--privileged me/ray:1", "me/ray:1 -v /:/h", "a;b", 7)),
    ],
)
def test_nothing_local_is_read_and_no_container_chooses_its_options(runtime_env: dict[str, Any], field: str) -> None:
    """Ray's client packs a local folder and opens a local file: a user must not get at those of a function."""
    refused = refused_field({"env_vars": {"A": "1"}} | runtime_env)
    assert refused is not None and refused.name == field and ("must" in refused.detail or "not" in refused.detail)


@pytest.mark.parametrize(
    "runtime_env",
    [
        *({"working_dir": f"{scheme}://b/k.zip"} for scheme in ("https", "s3", "gs", "azure")),
        {"working_dir": "abfss://code@account.dfs.core.windows.net/k.zip"},
        {"working_dir": "https://h:8443/a%20b.zip?version=1&part=2"},
        {"working_dir": "s3://b/a.zip", "py_modules": ["https://h/x.whl"], "pip": ["x==1"], "excludes": ["*.bin"]},
        {"conda": "an-environment-of-the-cluster", "env_vars": {"A": "1"}},
        {"conda": {"dependencies": ["pip"]}, "uv": {"packages": ["x"], "uv_check": True}},
        {"pip": {"packages": ["x"]}, "py_modules": []},
        {"image_uri": "registry:5000/me/ray@sha256:0f", "config": {"setup_timeout_seconds": 60}},
        {"working_dir": None, "py_modules": None, "pip": None, "container": None},
        {},
    ],
)
def test_what_the_cluster_fetches_by_itself_is_accepted(runtime_env: dict[str, Any]) -> None:
    """The schemes that Ray documents as remote, lists of packages, names and images."""
    assert refused_field(runtime_env) is None
