"""What a recovery takes grows with the gang and no faster: counted in calls of Python functions, not in time."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
from gpu_recovery.core.job.record import JobStatus

from simulator.fast.fidelity import LARGE
from simulator.world import World

pytestmark = pytest.mark.slow

SMALL, LARGER = 16, 96


def calls_of(work: Callable[[], object]) -> int:
    """How many Python functions `work` calls."""
    count = 0

    def counted(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(counted)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def recovery(ranks: int) -> tuple[int, World]:
    """Calls of one whole-gang recovery, for each rank: stop, check, reboot, relaunch."""
    world = World(instances=ranks + 1, fidelity=LARGE)
    job_id = world.submit(ranks)
    world.until_status(job_id, JobStatus.RUNNING)
    world.break_gpu(world.model_instance(0))
    again = (2, JobStatus.RUNNING)

    def recovers() -> None:
        world.until(lambda: (world.job(job_id).attempt, world.job(job_id).status) == again, "no recovery")

    return calls_of(recovers) // ranks, world


def test_a_recovery_takes_the_same_for_each_rank_however_many_there_are() -> None:
    """Placing, serving agents, finding tasks and asking invariants look at what they are about, not at everything."""
    small, _ = recovery(SMALL)
    larger, world = recovery(LARGER)
    assert larger <= small * 1.1
    assert len(world.fleet.running()) == LARGER


def test_an_hour_of_training_takes_little_for_each_rank() -> None:
    """The looks at a gang that runs read what has changed: nothing."""
    _, world = recovery(LARGER)
    world.let_pass(7_200)
    assert calls_of(lambda: world.let_pass(3_600)) // LARGER < 30 * 20
