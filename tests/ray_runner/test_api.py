"""Seed 004, section 8.2, point by point, as somebody sees it who has nothing but the HTTP API; Ray is a real head."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.ray.driver import DriverState

from ray_runner.cluster import RayCluster
from simulator.dynamodb.double import DynamoDb
from tests.aws.conftest import dynamo_store
from tests.aws.dynamodb_client import DoubleClient
from tests.ray_runner.head import GPUS, Head
from tests.ray_runner.http_api import Api
from tests.ray_runner.recovery_system import over

pytestmark = [
    pytest.mark.slow,
    pytest.mark.ray,
    pytest.mark.filterwarnings("ignore:No application metrics"),
]
S = JobStatus
PATIENCE_S = 300


@pytest.fixture
def api(head: Head, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    """No jobs, eight free GPUs, and tables as deployed."""
    scene = over(dynamo_store(DoubleClient(DynamoDb())), RayCluster(head.dashboard, head.control_store), monkeypatch)
    scene.until_free(GPUS)
    yield Api(scene)
    scene.end()


@pytest.mark.parametrize("workload", ["ppo", *(pytest.param(name, marks=pytest.mark.full) for name in ("grpo", "sft"))])
def test_point_1_and_4_a_task_is_submitted_runs_and_tells_its_attempt(
    api: Api, head: Head, end: Path, workload: str
) -> None:
    """Its id is readable, its attempt is the submission in Ray, and its log is the driver's."""
    job_id = api.submit(workload=workload, entrypoint=head.driver(GPUS, end))
    assert re.fullmatch(rf"{workload}-\d{{8}}-\d{{6}}-[0-9a-f]{{4}}", job_id)
    api.scene.deliver()
    api.scene.until(job_id, S.RUNNING)
    view = api.job(job_id)
    (attempt,) = view["attempts"]
    assert (view["status"], attempt["status"]) == ("RUNNING", "RUNNING")
    assert attempt["submission_id"] == f"{job_id}--a01" and attempt["started_at"] and not attempt["ended_at"]
    end.touch()
    api.scene.until(job_id, S.SUCCEEDED)
    (attempt,) = api.job(job_id)["attempts"]
    assert (attempt["status"], attempt["exit_code"], attempt["failure_kind"]) == ("SUCCEEDED", 0, None)
    assert datetime.fromisoformat(attempt["started_at"]) < datetime.fromisoformat(attempt["ended_at"])
    status, log = api.call("GET", f"/jobs/{job_id}/logs", tail="1")
    assert status == 200 and [line["text"] for line in log["lines"]] == ["holds 8 GPUs of attempt 1"]


def test_point_2_a_busy_cluster_means_pending_and_then_running(api: Api, head: Head, tmp_path: Path) -> None:
    """PENDING_RESOURCES, not FAILED, with what is missing; no attempt is made meanwhile."""
    strangers_end, end = tmp_path / "strangers-end", tmp_path / "end"
    api.scene.held_by_a_stranger(head, 5, strangers_end)
    job_id = api.submit(workload="grpo", n_gpus_per_node=4, entrypoint=head.driver(4, end))
    api.scene.deliver()
    waiting = api.job(job_id)
    assert (waiting["status"], waiting["attempts"]) == ("PENDING_RESOURCES", [])
    assert waiting["reason"] == "needs 4 GPUs of the Ray cluster; 3 are free"
    _, told = api.call("GET", f"/jobs/{job_id}/explain")
    assert told["pending"]["would_start"] is False and told["pending"]["sentence"] == waiting["reason"]
    strangers_end.touch()
    api.scene.until_free(GPUS)
    api.scene.passes(60)
    assert api.scene.until(job_id, S.RUNNING).attempt == 1
    end.touch()
    api.scene.until(job_id, S.SUCCEEDED)


def test_point_3_and_4_a_lost_race_is_told_by_its_kind_and_tried_again(api: Api, head: Head, tmp_path: Path) -> None:
    """The attempt is INSUFFICIENT_RESOURCES and does not count; the next one follows after 60 s, and both are told."""
    go, strangers_end, end = tmp_path / "go", tmp_path / "strangers-end", tmp_path / "end"
    job_id = api.submit(workload="ppo", entrypoint=head.driver(GPUS, end, go=go))
    api.scene.deliver()
    api.scene.until(job_id, S.RUNNING)
    api.scene.held_by_a_stranger(head, 2, strangers_end)
    go.touch()
    api.scene.until(job_id, S.PENDING_RESOURCES)
    lost_at = api.scene.now
    (lost,) = api.job(job_id)["attempts"]
    assert (lost["status"], lost["failure_kind"], lost["counted"]) == ("FAILED", "INSUFFICIENT_RESOURCES", False)
    assert "8" in lost["message"] and lost["started_at"] and lost["ended_at"]
    strangers_end.touch()
    api.scene.until_free(GPUS)
    api.scene.passes(59)
    assert api.job(job_id)["status"] == "PENDING_RESOURCES"
    api.scene.passes(1)
    api.scene.until(job_id, S.RUNNING)
    assert api.scene.now - lost_at >= timedelta(seconds=60)
    first, second = api.job(job_id)["attempts"]
    assert first == lost and (second["submission_id"], second["status"]) == (f"{job_id}--a02", "RUNNING")
    end.touch()
    api.scene.until(job_id, S.SUCCEEDED)
    assert api.job(job_id)["attempts_counted"] == 0


def test_point_5_a_cancel_stops_the_driver(api: Api, head: Head, end: Path) -> None:
    """202 at once; CANCELED when Ray shows it stopped, and its GPUs are free; a second one changes nothing."""
    job_id = api.submit(workload="sft", entrypoint=head.driver(GPUS, end))
    api.scene.deliver()
    api.scene.until(job_id, S.RUNNING)
    api.scene.until_free(0)
    status, view = api.call("POST", f"/jobs/{job_id}/cancel")
    assert (status, view["status"]) == (202, "STOPPING")
    api.scene.until(job_id, S.CANCELED)
    assert api.scene.pool.status(f"{job_id}--a01").state is DriverState.STOPPED
    api.scene.until_free(GPUS)
    (attempt,) = api.job(job_id)["attempts"]
    assert (attempt["status"], attempt["failure_kind"]) == ("STOPPED", None) and attempt["ended_at"]
    assert api.call("POST", f"/jobs/{job_id}/cancel")[0] == 200


def test_a_log_is_followed_while_its_driver_writes(api: Api) -> None:
    """Page after page, no line twice; the last page says that nothing will follow."""
    job_id = api.submit(
        workload="sft", n_gpus_per_node=1, entrypoint="for n in $(seq 9); do echo line $n; sleep 0.2; done"
    )
    api.scene.deliver()
    path, cursor, told = f"/jobs/{job_id}/logs", "", []
    patience = time.monotonic() + PATIENCE_S
    while cursor is not None:
        assert time.monotonic() < patience, told
        status, page = api.call("GET", path, **({"cursor": cursor} if cursor else {}))
        assert status == 200, page
        told += [line["text"] for line in page["lines"]]
        cursor = page["next_cursor"]
        time.sleep(0.1)
        api.scene.passes(1)
    assert [line for line in told if line.startswith("line ")] == [f"line {n}" for n in range(1, 10)]
