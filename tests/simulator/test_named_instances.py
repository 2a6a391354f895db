"""Instances that logs name: the same instance twice leads to the check of all, two instances do not."""

from __future__ import annotations

import pytest
from gpu_recovery.core.job.record import JobStatus

from simulator.cloud.log_output import LogStory
from simulator.world import World

RANKS, SPARES = 4, 2


def checks_after(world: World, job_id: str, rank: int) -> int:
    """Let a rank end with the log of a GPU fault. Return the number of checks that this attempt leads to."""
    before, attempt = len(world.calls("RunTask")), world.job(job_id).attempt
    world.log_output.next[world.rank(job_id, rank).instance_id] = LogStory.GPU
    world.exit(job_id, rank, 139)
    world.until(lambda: world.job(job_id).attempt == attempt + 1, "it was not placed again")
    world.until_status(job_id, JobStatus.RUNNING)
    launched = sum(step.given["startedBy"] == f"{job_id}--a{attempt + 1:02d}" for step in world.calls("RunTask"))
    return len(world.calls("RunTask")) - before - launched


@pytest.mark.parametrize("rank", [0, 2])
def test_the_fault_of_another_instance_soon_after_the_first_leads_to_no_check_of_all(rank: int) -> None:
    """Each of the two is checked alone, and the gang waits for neither."""
    world = World(instances=RANKS + SPARES, diagnose=True)
    job_id = world.submit(RANKS)
    world.until_status(job_id, JobStatus.RUNNING)
    assert checks_after(world, job_id, 1) == 1
    assert checks_after(world, job_id, rank) == 1


def test_the_same_instance_named_again_soon_leads_to_the_check_of_all() -> None:
    """The first diagnosis did not hold: the instance passed its check, and there is no other to take."""
    world = World(instances=RANKS, diagnose=True)
    job_id = world.submit(RANKS)
    world.until_status(job_id, JobStatus.RUNNING)
    named = world.rank(job_id, 1).instance_id
    assert checks_after(world, job_id, 1) == 1
    again = next(rank for rank in range(RANKS) if world.rank(job_id, rank).instance_id == named)
    assert checks_after(world, job_id, again) == RANKS
