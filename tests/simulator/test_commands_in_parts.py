"""Launch and stop of a gang go on where the time of their function ended, and no rank is asked for twice."""

from __future__ import annotations

from datetime import timedelta

import pytest
from gpu_recovery.core.attempt import Plan
from gpu_recovery.core.job.record import Job, JobStatus
from gpu_recovery.reconciler.reconcile import process_due_job

from simulator.cloud.rate_limits import Costs, Limit
from simulator.fast.fidelity import Checking, Fidelity
from simulator.faults.delivery import losing
from simulator.invocations import Effect, Killed
from simulator.lambda_runtime import EXECUTOR, RECONCILER, SCHEDULER, WAKE
from simulator.world import World

RANKS = 250
SLOW = Costs(ecs=Limit(20, 2))
"""Two changing calls of ECS a second, so that no function has time for 250."""
REMEMBERED = Fidelity(checking=Checking.RECORDS)


def a_gang_that_is_being_launched(nemesis: KillAtRunTask | None = None) -> tuple[World, str]:
    """A world in which the scheduler had no time for all ranks of a launch, and in which the reconciler sleeps.

    The command executor is not woken. It would see what the scheduler leaves before the time of the scheduler is over.
    """
    unwoken = losing(lambda envelope: envelope["detail-type"] == WAKE)
    world = World(instances=RANKS, fidelity=REMEMBERED, costs=SLOW, nemesis=nemesis, delivery=unwoken)
    world.asleep[RECONCILER] = world.timeline.now + timedelta(days=1)
    job_id = world.submit(RANKS)
    world.let_pass(150)
    return world, job_id


def reconciled(world: World, job_id: str) -> None:
    """Let the reconciler process the job once, and let time pass."""
    world.invocations.run(RECONCILER, lambda: process_due_job(world.recovery, job_id))
    world.let_pass(150)


def plan_of(world: World, job_id: str) -> Plan:
    """The plan of the first attempt."""
    plan = world.store.load_plan(job_id, 1)
    assert plan is not None
    return plan


def callers(world: World, operation: str) -> list[str]:
    """The functions that made these calls, in order, each with its number of calls."""
    names = [step.invocation for step in world.calls(operation)]
    return [f"{name}: {names.count(name)}" for name in dict.fromkeys(names)]


def test_a_launch_goes_on_with_the_ranks_that_have_no_task() -> None:
    """The scheduler starts two hundred ranks in its time, and the reconciler starts the other fifty."""
    world, job_id = a_gang_that_is_being_launched()
    assert world.job(job_id).status is JobStatus.SUBMITTING
    assert sum(map(bool, plan_of(world, job_id).task_ids)) == 200
    reconciled(world, job_id)
    assert world.job(job_id).status is JobStatus.RUNNING and all(plan_of(world, job_id).task_ids)
    assert callers(world, "RunTask") == [f"{SCHEDULER}: 200", f"{RECONCILER}: 50"]
    assert not world.invocations.killed and not world.failures


def test_a_launch_that_is_left_is_given_up_by_a_cancellation() -> None:
    """What was started is stopped, the ranks without a task count as ended, and every instance is free."""
    world, job_id = a_gang_that_is_being_launched()
    del world.asleep[RECONCILER]
    world.cancel(job_id)
    assert world.until_end(job_id).status is JobStatus.CANCELED
    assert len(world.calls("RunTask")) == len(world.calls("StopTask")) == 200
    assert not world.fleet.running()
    assert not any(record.claims or record.reserved_for for record in world.instances())


class KillAtRunTask:
    """Kills the function that makes the call of RunTask with this number."""

    def __init__(self, number: int) -> None:
        self.left = number

    def before(self, step: Effect) -> None:
        """Count the call, and kill its function."""
        self.left -= step.name == "RunTask"
        if step.name == "RunTask" and self.left == 0:
            raise Killed

    def after(self, step: Effect) -> None:
        """Let the rest pass."""


def test_a_launcher_that_is_killed_costs_its_last_part() -> None:
    """Each part is recorded when it is done. The calls of the part under way are repeated with the same tokens."""
    world, job_id = a_gang_that_is_being_launched(KillAtRunTask(150))
    assert sum(map(bool, plan_of(world, job_id).task_ids)) >= 100
    del world.asleep[RECONCILER]
    world.until_status(job_id, JobStatus.RUNNING)
    assert len(world.calls("RunTask")) <= 149 + 150
    assert len(world.fleet.running()) == RANKS


@pytest.mark.parametrize("stuck", [False, True])
def test_a_stop_goes_on_with_the_tasks_that_were_not_asked_to_stop(stuck: bool) -> None:
    """Ranks that ignore every signal still run when the next function goes on, and are not asked again."""
    world = World(instances=RANKS, fidelity=REMEMBERED, costs=Costs())
    job_id = world.submit(RANKS)
    world.until_status(job_id, JobStatus.RUNNING)
    assert world.meter is not None
    world.meter.costs = SLOW
    world.meter.buckets.clear()
    world.asleep[RECONCILER] = world.timeline.now + timedelta(days=1)
    world.fleet.stuck.update(world.job(job_id).instances if stuck else ())
    world.cancel(job_id)
    world.let_pass(150)
    assert callers(world, "StopTask") == [f"{EXECUTOR}: 200"]
    reconciled(world, job_id)
    assert callers(world, "StopTask") == [f"{EXECUTOR}: 200", f"{RECONCILER}: 50"]
    assert len({step.given["task"] for step in world.calls("StopTask")}) == RANKS
    job: Job = world.job(job_id)
    assert job.status is (JobStatus.STOPPING if stuck else JobStatus.CANCELED)
    assert not job.commands and not world.invocations.killed and not world.failures
