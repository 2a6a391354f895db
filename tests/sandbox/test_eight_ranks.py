"""Restart in place and a warm spare with eight ranks, as `three_instances/test_in_place.py` shows them with two."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox import sandbox
from tests.sandbox.patience import wait_until
from tests.sandbox.restarts import ECC, RESET, is_warm, recovered, seconds, tasks_of
from tests.sandbox.time_sharing import Shared, shared_by_users, told

pytestmark = [pytest.mark.full, pytest.mark.skipif(sys.platform != "linux", reason="the agent reads /proc")]
RANKS = 8
POLICY = {"poll_interval_s": 5, "pending_retry_s": 5, "suspect_s": 15, "hold_retry_interval_s": 2}
GANG = {"nnodes": RANKS, "n_gpus_per_node": 1, "restart_in_place": True}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the sandbox."""
    return tmp_path_factory.mktemp("eight-ranks")


@pytest.fixture(scope="module")
def state(directory: Path) -> Iterator[dict[str, Any]]:
    """The state of the sandbox: an instance for each rank, and one more. Each has one GPU."""
    try:
        yield sandbox.up(directory, instances=RANKS + 1, gpus=1, policy=POLICY, agents=True)
    finally:
        sandbox.down(directory)


@pytest.fixture(scope="module")
def shared(directory: Path, state: dict[str, Any]) -> Iterator[Shared]:
    """The sandbox, once its instances are known."""
    with shared_by_users(directory, state, RANKS + 1, {}) as sandbox_of_all:
        yield sandbox_of_all


def test_seven_of_eight_ranks_train_again_in_the_same_containers(state: dict[str, Any], shared: Shared) -> None:
    """The rank whose connection was reset is a new task on the ninth instance."""
    job, folder = recovered(state, shared, "transient", RESET, **GANG)
    tasks = tasks_of(shared, job["job_id"])
    assert job["attempt"] == 2 and job["ranks_in_place"] == RANKS - 1, told(job)
    assert len(tasks) == RANKS + 1
    assert sum(task["last_status"] == "RUNNING" for task in tasks.values()) == RANKS
    print(f"in place, {RANKS} ranks: {seconds(folder):.1f} s from the crash to the next step")
    (folder / "looked").touch()
    shared.succeeds(job["job_id"])
    wait_until(lambda: all(not one["claims"] for one in shared.operator.instances()))


def test_the_lost_one_of_eight_ranks_starts_in_a_warm_spare(state: dict[str, Any], shared: Shared) -> None:
    """The seven others go on in their containers, and no task is started for the second attempt."""

    def warm(job_id: str) -> bool:
        return is_warm(shared, job_id, RANKS)

    job, folder = recovered(state, shared, "warm", ECC, warm, **GANG, warm_spares=1)
    assert job["attempt"] == 2 and "1 rank(s) start on warm spares" in told(job), told(job)
    assert job["ranks_in_place"] == RANKS
    print(f"warm spare, {RANKS} ranks: {seconds(folder):.1f} s from the crash to the next step")
    (folder / "looked").touch()
    shared.succeeds(job["job_id"])
    wait_until(lambda: all(not one["claims"] for one in shared.operator.instances()))
