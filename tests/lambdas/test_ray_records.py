"""The archive of a job on Ray: what its driver wrote last is kept with each failed attempt, as of a rank on ECS."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.job.spec import Backend
from gpu_recovery.core.ray.driver import DriverState, DriverStatus
from gpu_recovery.execution.job_archive import ARCHIVED_LINE_CHARACTERS_MAX, ARCHIVED_LOG_LINES
from gpu_recovery.ports.errors import TryAgainSoon

from tests.aws.records import NOW, job, later, spec
from tests.lambdas.conftest import Functions
from tests.lambdas.ray_function import RayFunction, ray_runner_of

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")
ON_RAY = spec(nnodes=1, gpus_per_node=8, backend=Backend.RAY, entrypoint="python train.py", task_definition="")
DIED = DriverStatus(DriverState.FAILED, "KeyError: 17", 1, "JOB_ENTRYPOINT_COMMAND_ERROR")
VERL = "ValueError: Total available GPUs 0 is less than total desired GPUs 8\n"


@pytest.fixture
def ray(functions: Functions, monkeypatch: pytest.MonkeyPatch) -> Iterator[RayFunction]:
    """A deployment that records attempts, with a job whose driver Ray has taken."""
    monkeypatch.setenv("RECOVERY_POLICY", json.dumps({"preset": "adaptive", "record_attempts": True}))
    functions.store.create_job(job("ppo-1", spec=ON_RAY), "")
    with ray_runner_of(functions) as made:
        made.deliver()
        assert made.pool.status("ppo-1--a01").state is DriverState.PENDING
        yield made


def recorded(ray: RayFunction) -> dict[str, Any]:
    """The last document of the first attempt."""
    put = [asked for asked in ray.functions.aws.asked("PutObject") if asked["Key"] == "jobs/ppo-1/a01/attempt.json"]
    document: dict[str, Any] = json.loads(put[-1]["Body"].getvalue())
    return document


def test_the_last_lines_of_a_failed_driver_are_recorded(ray: RayFunction) -> None:
    """Seed 004 keeps the key logs of each attempt: the last lines, without secrets, after Ray has forgotten them."""
    lines = [f"step {number}" for number in range(500)]
    ray.ends("ppo-1--a01", DIED, "".join(f"{line}\n" for line in [*lines, "login token=hf_abcdef", "KeyError: 17"]))
    kept = recorded(ray)
    assert ray.functions.job("ppo-1").status is JobStatus.FAILED
    assert (kept["status"], kept["backend_ids"]) == ("FAILED", ["ppo-1--a01"])
    last = [*lines[-(ARCHIVED_LOG_LINES - 2) :], "login token=***", "KeyError: 17"]
    assert kept["log"] == {"rank": 0, "lines": last, "why_none": None}


def test_a_long_line_of_a_driver_is_cut(ray: RayFunction) -> None:
    """A log may have 64 MiB, and all of them in a line: the record stays small, and secrets are found in time."""
    ray.ends("ppo-1--a01", DIED, f"{'x' * 1_000_000}\nKeyError: 17\n")
    assert recorded(ray)["log"]["lines"] == ["x" * ARCHIVED_LINE_CHARACTERS_MAX, "KeyError: 17"]


def test_the_log_of_a_lost_race_is_recorded_too(ray: RayFunction) -> None:
    """The attempt failed, although the job waits for the next."""
    ray.ends("ppo-1--a01", DriverStatus(DriverState.FAILED, "exit", 1, "JOB_ENTRYPOINT_COMMAND_ERROR"), VERL)
    assert ray.functions.job("ppo-1").status is JobStatus.PENDING_RESOURCES
    kept = recorded(ray)
    assert kept["failure_kind"] == "INSUFFICIENT_RESOURCES" and kept["log"]["lines"] == [VERL.rstrip()]


@pytest.mark.parametrize("is_in_message", [False, True])
@pytest.mark.parametrize(("ran_s", "after"), [(1_799, JobStatus.PENDING_RESOURCES), (1_800, JobStatus.FAILED)])
def test_a_driver_that_ran_for_long_has_lost_no_race(
    ray: RayFunction, ran_s: int, after: JobStatus, is_in_message: bool
) -> None:
    """verl counts GPUs at its start. The two texts of an earlier try stay in the log of a driver that fails later."""
    died = replace(
        DIED, message=f"{VERL}KeyError: 17" if is_in_message else "KeyError: 17", started_at=NOW, ended_at=later(ran_s)
    )
    ray.ends("ppo-1--a01", died, f"{VERL}retrying\nKeyError: 17\n")
    job = ray.functions.job("ppo-1")
    assert job.status is after
    if after is JobStatus.FAILED:
        assert "exited with code 1 (KeyError: 17)" in job.reason
        assert recorded(ray)["log"]["lines"][-1] == "KeyError: 17"


@pytest.mark.parametrize(
    ("status", "log"),
    [
        (DriverStatus(DriverState.SUCCEEDED, "", 0), None),
        (DIED, {"rank": 0, "lines": [], "why_none": "the Ray cluster has no log of ppo-1--a01"}),
    ],
)
def test_an_attempt_without_lines_says_why(ray: RayFunction, status: DriverStatus, log: Any) -> None:
    """A driver that succeeded needs none."""
    ray.ends("ppo-1--a01", status)
    assert recorded(ray)["log"] == log


def test_a_cluster_that_does_not_answer_delays_no_record(ray: RayFunction, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest of the record is written without it."""

    def logs(submission_id: str, tail: int) -> str:
        if tail == ARCHIVED_LOG_LINES:
            raise TryAgainSoon("the Ray cluster does not answer: timed out")
        return "KeyError: 17\n"

    monkeypatch.setattr(ray.pool, "logs", logs)
    ray.ends("ppo-1--a01", DIED)
    why = "the Ray cluster does not answer: timed out"
    assert recorded(ray)["log"] == {"rank": 0, "lines": [], "why_none": why}


def test_a_function_that_cannot_reach_the_cluster_records_the_rest(ray: RayFunction) -> None:
    """It takes the command over from a `ray_runner` that was cut off."""

    def cut_off(asked: dict[str, Any]) -> dict[str, Any]:
        raise MemoryError("killed")

    ray.functions.aws.answers["PutObject"] = cut_off
    with pytest.raises(ExceptionGroup):
        ray.ends("ppo-1--a01", DIED, "KeyError: 17\n")
    del ray.functions.aws.answers["PutObject"]
    ray.functions.now = later(600)
    ray.functions.call("reconciler", {})
    kept = recorded(ray)
    assert kept["message"] == "exited with code 1 (KeyError: 17)"
    assert kept["log"]["lines"] == [] and "gpu-recovery logs" in kept["log"]["why_none"]
