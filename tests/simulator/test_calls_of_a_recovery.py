"""Changing calls of ECS and wakes of the scheduler in the recovery of a gang, counted."""

from __future__ import annotations

import pytest
from gpu_recovery.core.job.record import JobStatus

from simulator.fast.fidelity import Checking, Fidelity
from simulator.world import World

RANKS = 130
"""More ranks than one DescribeTasks describes, and than one part of a stop has."""
REMEMBERED = Fidelity(checking=Checking.RECORDS)


def a_running_gang(ranks: int = RANKS, **given: object) -> tuple[World, str]:
    """A world with a job whose ranks all run."""
    world = World(instances=ranks, fidelity=REMEMBERED, **given)  # type: ignore[arg-type]
    job_id = world.submit(ranks)
    world.until_status(job_id, JobStatus.RUNNING)
    return world, job_id


@pytest.mark.parametrize("survivors", [0, 3])
def test_a_gang_that_ends_together_has_only_its_running_ranks_stopped(survivors: int) -> None:
    """All ranks of a hang end with the timeout of NCCL. The first try stops no task that ECS shows as stopped."""
    world, job_id = a_running_gang()
    living = {world.rank(job_id, rank).task_id for rank in range(survivors)}
    for rank in range(survivors, RANKS):
        world.exit(job_id, rank, 134)
    world.until(lambda: world.job(job_id).attempt == 2, "it was not relaunched")
    stopped = [step.given["task"] for step in world.calls("StopTask")]
    assert sorted(stopped) == sorted(living)
