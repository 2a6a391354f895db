"""Changing calls of ECS and wakes of the scheduler in the recovery of a gang, counted."""

from __future__ import annotations

from datetime import timedelta

import pytest
from gpu_recovery.core.job.record import JobStatus

from simulator.cloud.rate_limits import Costs, Limit
from simulator.fast.fidelity import Checking, Fidelity
from simulator.lambda_runtime import RECONCILER
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


@pytest.mark.parametrize("purpose", ["StopTask", "RunTask"])
def test_a_throttled_call_is_made_again_by_the_same_function(purpose: str) -> None:
    """A cancellation of another gang has emptied the bucket for half a minute. No command waits for the reconciler."""
    world = World(instances=RANKS + 4, fidelity=REMEMBERED, costs=Costs())
    other, job_id = world.submit(RANKS), world.submit(4)
    for one in (other, job_id):
        world.until_status(one, JobStatus.RUNNING)
    assert world.meter is not None
    world.meter.costs = Costs(ecs=Limit(20, 4))
    world.meter.buckets.clear()
    world.asleep[RECONCILER] = world.timeline.now + timedelta(days=1)
    world.cancel(other)
    for rank in range(0 if purpose == "RunTask" else 3, 4):
        world.exit(job_id, rank, 139)
    world.until(lambda: world.job(job_id).status is JobStatus.DIAGNOSING, "its ranks did not end", 600)
    world.until(lambda: world.job(job_id).status is not JobStatus.DIAGNOSING, "its instances were not checked", 600)
    assert world.meter.refused > 0 and not world.failures and not world.invocations.killed


@pytest.mark.parametrize("costs", [None, Costs(call_s=0.05, store_s=0.01)])
@pytest.mark.parametrize("ranks", [16, RANKS])
def test_a_gang_that_is_given_back_wakes_the_scheduler_a_few_times(ranks: int, costs: Costs | None) -> None:
    """A job waits for all instances. Each ends its check, and one pass reads all that ended before it."""
    world, job_id = a_running_gang(ranks, costs=costs)
    waiting = world.submit(ranks)
    world.let_pass(400)
    since = len(world.invocations.steps)
    world.exit(job_id, 1, 139)
    world.until(lambda: world.job(job_id).attempt == 2, "it was not relaunched")
    world.let_pass(30)
    names = [step.name for step in world.invocations.steps[since:]]
    assert names.count("store.add_changed_instance") >= ranks
    assert names.count("SendMessage") <= 8 and names.count("store.begin_term") <= 8
    assert world.job(waiting).attempt == 0
