"""Seed 004, section 8.2, against a real Ray head: busy, free, the race that verl loses, cancel, and lost messages.

Ray runs in its own time; ours is a clock that the tests move.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from gpu_recovery.core.diagnosis.taxonomy import Cause
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.ray.driver import DriverState

from ray_runner import handler as function
from ray_runner.cluster import RayCluster
from simulator.dynamodb.double import DynamoDb
from simulator.memory_store.store import MemoryStore
from tests.aws.conftest import dynamo_store
from tests.aws.dynamodb_client import DoubleClient
from tests.lambdas.conftest import Context
from tests.ray_runner.head import GPUS, Head
from tests.ray_runner.recovery_system import Scene, over

pytestmark = [pytest.mark.slow, pytest.mark.ray]
S = JobStatus
PATIENCE_S = 300


@pytest.fixture
def scene(head: Head, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    """No jobs, and eight free GPUs."""
    found = over(MemoryStore(), RayCluster(head.dashboard, head.control_store), monkeypatch)
    found.until_free(GPUS)
    yield found
    found.end()


def _until_said(scene: Scene, name: str, words: str) -> None:
    patience = time.monotonic() + PATIENCE_S
    while words not in scene.pool.logs(name, 5):
        assert time.monotonic() < patience, scene.pool.logs(name, 50)
        time.sleep(0.1)


def test_a_driver_that_fails_is_diagnosed_by_its_log(scene: Scene, tmp_path: Path) -> None:
    """What it wrote last is not what it died of, and Ray's message holds nothing else."""
    script = tmp_path / "train.py"
    script.write_text(
        "import sys\nprint('epoch 1')\nprint('ModuleNotFoundError: No module named flash_attn')\n"
        "print('shutting down\\n' * 40)\nsys.exit(1)\n"
    )
    job_id = scene.submit(f"{sys.executable} {script}")
    scene.deliver()
    ended = scene.until(job_id, S.FAILED)
    assert "ModuleNotFoundError" in ended.reason
    assert ended.diagnosed is not None and ended.diagnosed.cause is Cause.CONFIGURATION


def test_a_job_goes_through_every_status_and_succeeds(scene: Scene, head: Head, end: Path) -> None:
    """Point 4: the attempt is the submission in Ray; points 1 and 2: it runs as soon as it fits."""
    job_id = scene.submit(head.driver(GPUS, end))
    scene.deliver()
    scene.until(job_id, S.RUNNING)
    _until_said(scene, f"{job_id}--a01", "holds 8 GPUs of attempt 1")
    end.touch()
    done = scene.until(job_id, S.SUCCEEDED)
    assert [entry.after for entry in done.history if entry.before != entry.after] == [
        S.QUEUED,
        S.SUBMITTING,
        S.SUBMITTED,
        S.RUNNING,
        S.SUCCEEDED,
    ]


def test_a_record_on_dynamodb_goes_the_same_way(scene: Scene, head: Head, tmp_path: Path) -> None:
    """The race, the second attempt and the cancel, over the store that is deployed."""
    go, end = tmp_path / "go", tmp_path / "end"
    scene.store = dynamo_store(DoubleClient(DynamoDb()))
    job_id = scene.submit(head.driver(GPUS, end, go=go), runtime_env='{"env_vars": {"A": "1"}}', env={"B": "2"})
    scene.deliver()
    scene.until(job_id, S.RUNNING)
    scene.held_by_a_stranger(head, 2, end)
    go.touch()
    scene.until(job_id, S.PENDING_RESOURCES)
    end.touch()
    scene.until_free(GPUS)
    end.unlink()
    scene.passes(60)
    assert scene.until(job_id, S.RUNNING).attempt == 2
    scene.cancel(job_id)
    scene.until(job_id, S.CANCELED)
    scene.end()
    scene.jobs.clear()  # their table ends here


def test_a_busy_cluster_keeps_a_job_in_line_until_it_is_free(scene: Scene, head: Head, tmp_path: Path) -> None:
    """Point 2: PENDING_RESOURCES, not FAILED; nothing is submitted; freed, it runs by itself."""
    strangers_end, end = tmp_path / "strangers-end", tmp_path / "end"
    scene.held_by_a_stranger(head, 5, strangers_end)
    job_id = scene.submit(head.driver(4, end), gpus=4)
    scene.deliver()
    waiting = scene.job(job_id)
    assert waiting.status is S.PENDING_RESOURCES
    assert waiting.reason == "needs 4 GPUs of the Ray cluster; 3 are free"
    scene.passes(60)
    assert scene.job(job_id).status is S.PENDING_RESOURCES
    assert scene.pool.status(f"{job_id}--a01").state is DriverState.GONE
    strangers_end.touch()
    scene.until_free(GPUS)
    scene.passes(60)
    assert scene.until(job_id, S.RUNNING).attempt == 1
    end.touch()
    scene.until(job_id, S.SUCCEEDED)


@pytest.mark.full
def test_a_job_that_ends_makes_way_for_the_next_at_once(scene: Scene, head: Head, tmp_path: Path) -> None:
    """Two jobs of ours for the same GPUs: the second is let go by the first one's end, not before."""
    ends = [tmp_path / "0", tmp_path / "1"]
    first, second = (scene.submit(head.driver(GPUS, end)) for end in ends)
    scene.deliver()
    assert scene.job(second).status is S.PENDING_RESOURCES  # Ray shows them free: the driver has not taken them yet
    scene.until(first, S.RUNNING)
    assert scene.job(second).status is S.PENDING_RESOURCES
    scene.until_free(0)
    ends[0].touch()
    scene.until(first, S.SUCCEEDED)
    scene.until_free(GPUS)
    scene.tick()
    assert scene.until(second, S.RUNNING).attempt == 1
    ends[1].touch()
    scene.until(second, S.SUCCEEDED)


def test_a_race_that_verl_loses_is_tried_again_after_a_minute(scene: Scene, head: Head, tmp_path: Path) -> None:
    """Point 3: free when it was let go, taken when verl counted: the next attempt, uncounted, 60 s later."""
    go, strangers_end, end = tmp_path / "go", tmp_path / "strangers-end", tmp_path / "end"
    job_id = scene.submit(head.driver(GPUS, end, lines_after=40, go=go))
    scene.deliver()
    scene.until(job_id, S.RUNNING)
    scene.held_by_a_stranger(head, 2, strangers_end)
    go.touch()
    back = scene.until(job_id, S.PENDING_RESOURCES)
    assert "found 6 free GPUs of the 8 that it needs" in back.reason
    assert (back.attempt, back.attempts_counted, dict(back.attempts_uncounted)) == (1, 0, {"INSUFFICIENT_RESOURCES": 1})
    assert back.not_before == scene.now + timedelta(seconds=60)
    strangers_end.touch()
    scene.until_free(GPUS)
    scene.passes(59)
    assert scene.job(job_id).status is S.PENDING_RESOURCES
    assert scene.pool.status(f"{job_id}--a02").state is DriverState.GONE
    scene.passes(1)
    assert scene.until(job_id, S.RUNNING).attempt == 2
    _until_said(scene, f"{job_id}--a02", "holds 8 GPUs of attempt 2")
    end.touch()
    scene.until(job_id, S.SUCCEEDED)


def test_what_can_never_fit_is_an_error_of_the_user(scene: Scene, head: Head, end: Path) -> None:
    """It asks for eight and its program for nine, of a cluster that has eight."""
    job_id = scene.submit(head.driver(GPUS + 1, end))
    scene.deliver()
    failed = scene.until(job_id, S.FAILED)
    assert "wants 9 GPUs, and the Ray cluster has 8 in all" in failed.reason
    assert not failed.attempts_uncounted


@pytest.mark.full
def test_a_job_larger_than_the_cluster_waits_and_holds_nobody_back(scene: Scene, head: Head, end: Path) -> None:
    """A cluster may grow; until then it says what there is."""
    giant, small = scene.submit("true", gpus=16), scene.submit("true", gpus=1)
    scene.deliver()
    assert scene.job(giant).reason == "needs 16 GPUs; the Ray cluster has 8 in all, used or free"
    scene.until(small, S.SUCCEEDED)
    assert scene.job(giant).status is S.PENDING_RESOURCES


def test_a_program_that_fails_is_not_tried_again(scene: Scene) -> None:
    """Seed 004, section 6.3: everything else stays FAILED, and operators are told."""
    job_id = scene.submit("sleep 0.3; echo 'KeyError: 17'; exit 3")
    scene.deliver()
    failed = scene.until(job_id, S.FAILED)
    assert failed.reason == "the driver of attempt 1 exited with code 3 (KeyError: 17)"
    scene.passes(120)
    assert scene.pool.status(f"{job_id}--a02").state is DriverState.GONE
    assert [message.job_id for message in scene.aws.said] == [job_id]


def test_a_cancel_stops_the_driver_in_ray(scene: Scene, head: Head, end: Path) -> None:
    """Point 5: CANCELED is said when it has ended, and its GPUs are free."""
    job_id = scene.submit(head.driver(GPUS, end))
    scene.deliver()
    scene.until(job_id, S.RUNNING)
    scene.until_free(0)
    scene.cancel(job_id)
    assert scene.job(job_id).status is S.STOPPING
    scene.until(job_id, S.CANCELED)
    assert scene.pool.status(f"{job_id}--a01").state is DriverState.STOPPED
    scene.until_free(GPUS)


@pytest.mark.full
def test_a_driver_that_ray_cannot_start_is_not_canceled_before_it_has_ended(scene: Scene) -> None:
    """Ray says that it stops it, and keeps it PENDING: the record says what is true."""
    job_id = scene.submit("true", entrypoint_resources={"a-resource-that-nobody-has": 1})
    scene.deliver()
    scene.until(job_id, S.SUBMITTED)
    scene.cancel(job_id)
    scene.deliver()
    scene.passes(1)
    assert scene.job(job_id).status is S.STOPPING
    assert scene.pool.status(f"{job_id}--a01").state is DriverState.PENDING


def test_a_refused_order_fails_the_job_with_rays_words(scene: Scene) -> None:
    """The user learns what is wrong with the runtime_env."""
    job_id = scene.submit("true", runtime_env='{"env_vars": {"A": 1}, "working_dir": "/var/task"}')
    scene.deliver()
    failed = scene.job(job_id)
    assert failed.status is S.FAILED and "runtime_env.working_dir" in failed.reason


def test_lost_messages_are_made_up_for_by_the_reconciler(scene: Scene, head: Head, end: Path) -> None:
    """Each order stays in the record, due, until it is carried out."""
    job_id = scene.submit(head.driver(GPUS, end))
    scene.messages.clear()
    scene.passes(60)
    scene.until(job_id, S.RUNNING)
    scene.cancel(job_id)
    scene.messages.clear()
    assert any(one.acting_until <= scene.now for one in scene.job(job_id).commands)
    scene.until(job_id, S.CANCELED)


@pytest.mark.full
def test_messages_that_come_twice_or_late_start_nothing_twice(scene: Scene, tmp_path: Path) -> None:
    """Whatever is delivered again finds its work done."""
    job_id = scene.submit(f"echo ran >> {tmp_path / 'runs'}")
    for _ in range(3):
        scene.wake(job_id, "again")
        scene.deliver()
    scene.until(job_id, S.SUCCEEDED)
    scene.wake(job_id, "late")
    scene.deliver()
    assert (tmp_path / "runs").read_text() == "ran\n"


def test_a_head_that_does_not_answer_loses_nothing(scene: Scene, head: Head, end: Path) -> None:
    """Orders wait in the record until the cluster is there again."""
    job_id = scene.submit(head.driver(GPUS, end))
    scene.deliver()
    scene.until(job_id, S.RUNNING)
    there, scene.pool = scene.pool, RayCluster("http://127.0.0.1:9", "127.0.0.1:9")
    scene.cancel(job_id)
    scene.deliver()
    assert scene.job(job_id).status is S.STOPPING
    scene.pool = there
    scene.passes(60)
    scene.until(job_id, S.CANCELED)


def test_a_log_is_read_for_whoever_cannot_reach_the_cluster(scene: Scene) -> None:
    """The API calls the function for it."""
    job_id = scene.submit("sleep 0.3; echo one; echo two")
    scene.deliver()
    scene.until(job_id, S.SUCCEEDED)
    question = {"logs": f"{job_id}--a01", "tail": 1}
    newest = function.handler(question, Context("ray_runner"))
    assert newest is not None and newest["logs"] == "two\n"
    on_from_there = {"logs": f"{job_id}--a01", "tail": 9, "after": newest["end"] - 2}
    assert function.handler(on_from_there, Context("ray_runner")) == {**newest, "logs": "one\ntwo\n"}
