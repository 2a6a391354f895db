"""Restart in place as deployed: real agents, real wrappers, and training processes that end and start again."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tests.sandbox.patience import wait_until
from tests.sandbox.restarts import COMMAND, ECC, UNAVAILABLE, is_warm, recovered, seconds, tasks_of
from tests.sandbox.time_sharing import Shared, told

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="the agent reads /proc")]


def test_a_transient_crash_trains_again_in_the_same_containers(state: dict[str, Any], shared: Shared) -> None:
    """Two ranks, one service that is unavailable: a new attempt, and no task is started or stopped for it."""
    job, folder = recovered(state, shared, "transient", UNAVAILABLE, restart_in_place=True)
    tasks = tasks_of(shared, job["job_id"])
    assert job["attempt"] == 2 and "restarted in place" in told(job), told(job)
    assert len(tasks) == 2 and {task["last_status"] for task in tasks.values()} == {"RUNNING"}
    print(f"in place: {seconds(folder):.1f} s from the crash to the next step")
    (folder / "looked").touch()
    shared.succeeds(job["job_id"])
    assert len(tasks_of(shared, job["job_id"])) == 2


@pytest.mark.full
def test_a_transient_crash_trains_again_in_the_processes_that_stood_by(state: dict[str, Any], shared: Shared) -> None:
    """Each rank has one, and the job hears nothing of them: two ranks run, and no task is started."""

    def stand_by(job_id: str) -> bool:
        return shared.written(job_id, 1).count("a standby process waits") == 2

    command = ["env", "GPU_RECOVERY_STANDBY=1", "GPU_RECOVERY_STANDBY_AFTER_S=0", *COMMAND]
    job, folder = recovered(state, shared, "standby", UNAVAILABLE, stand_by, command, restart_in_place=True)
    written = shared.written(job["job_id"], 1)
    assert job["attempt"] == 2 and "restarted in place" in told(job), told(job)
    assert written.count("the standby process runs the attempt") == 2, written
    assert len(tasks_of(shared, job["job_id"])) == 2
    print(f"standby: {seconds(folder):.1f} s from the crash to the next step")
    (folder / "looked").touch()
    shared.succeeds(job["job_id"])


def test_only_the_rank_on_the_faulty_instance_is_a_new_task(state: dict[str, Any], shared: Shared) -> None:
    """Its instance is named by the evidence: the other rank goes on in its container, and a spare takes over."""
    job_id = ""
    job, folder = recovered(state, shared, "swap", ECC, restart_in_place=True)
    job_id = job["job_id"]
    tasks = tasks_of(shared, job_id)
    assert job["attempt"] == 2 and "1 of 2 rank(s) are restarted in place" in told(job), told(job)
    assert sorted(task["started_by"] for task in tasks.values()) == [f"{job_id}--a01"] * 2 + [f"{job_id}--a02"]
    print(f"swap-one: {seconds(folder):.1f} s from the crash to the next step")
    (folder / "looked").touch()
    shared.succeeds(job_id)
    wait_until(lambda: all(not one["claims"] for one in shared.operator.instances()))


def test_a_lost_rank_starts_in_the_container_of_a_warm_spare(state: dict[str, Any], shared: Shared) -> None:
    """The spare has no process of the program before. No task is started for the second attempt."""

    def warm(job_id: str) -> bool:
        return is_warm(shared, job_id, 2)

    job, folder = recovered(state, shared, "warm", ECC, warm, restart_in_place=True, warm_spares=1)
    job_id = job["job_id"]
    assert job["attempt"] == 2 and "1 rank(s) start on warm spares" in told(job), told(job)
    assert job["ranks_in_place"] == 2
    assert {task["started_by"] for task in tasks_of(shared, job_id).values()} <= {f"{job_id}--a01", f"{job_id}--a02"}
    assert seconds(folder) < 30
    print(f"warm spare: {seconds(folder):.1f} s from the crash to the next step")
    (folder / "looked").touch()
    shared.succeeds(job_id)
    wait_until(lambda: all(not one["claims"] for one in shared.operator.instances()))
