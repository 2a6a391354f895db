"""Behaviour 2: all instances are checked behind a barrier, and a restart waits for every instance it needs."""

from __future__ import annotations

from itertools import permutations

import pytest
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.job.record import JobStatus

from simulator.cloud.workloads import ScriptedCheck
from tests.simulator import incidents
from tests.tiers import sampled

SECONDS = (40.0, 100.0, 160.0, 220.0)


ORDERS = [*permutations(range(2)), *permutations(range(3)), *permutations(range(4))]


@pytest.mark.parametrize("order", sampled(ORDERS, fast=8, default=len(ORDERS)), ids=str)
def test_the_barrier_is_independent_of_the_order_of_results(order: tuple[int, ...]) -> None:
    """In whatever order the checks end, nothing is decided before the last, and the decision is the same."""
    world, job_id = incidents.running(len(order))
    for number, place in enumerate(order):
        outcome = CheckOutcome.REBOOT if number == 0 else CheckOutcome.HEALTHY
        world.checks.script(world.model_instance(number), ScriptedCheck(outcome, seconds=SECONDS[place]))
    world.break_gpu(world.model_instance(0))
    diagnosing = world.until_status(job_id, JobStatus.DIAGNOSING).status_at
    world.until(lambda: world.job(job_id).status is not JobStatus.DIAGNOSING, "the barrier stayed up")
    waited = (world.timeline.now - diagnosing).total_seconds()
    assert SECONDS[len(order) - 1] <= waited < SECONDS[len(order) - 1] + 30
    assert world.job(job_id).repairing == (world.model_instance(0).instance_id,)
    incidents.ended(world, job_id)
    assert (world.job(job_id).status, world.job(job_id).attempt) == (JobStatus.SUCCEEDED, 2)
    assert dict(world.fleet.boots) == {world.model_instance(0).instance_id: 1}


def test_eight_instances_with_two_faulty_are_healed_behind_one_barrier() -> None:
    """Every instance is checked once, both faulty ones are rebooted once, and all eight ranks run again."""
    world, job_id = incidents.two_of_eight_faulty()
    first = [s.given["startedBy"] for s in world.calls("RunTask") if s.given["startedBy"].endswith("/1")]
    assert sorted(first) == sorted(f"check/{machine.instance_id}/1" for machine in world.model_instances())
    assert dict(world.fleet.boots) == {world.model_instance(n).instance_id: 1 for n in (2, 5)}
    again = [task for task in world.cluster.tasks.values() if task.started_by == f"{job_id}--a02"]
    assert len(again) == 8 and len({task.instance_id for task in again}) == 8
    assert world.job(job_id).status is JobStatus.SUCCEEDED


def test_a_restart_waits_for_every_instance_under_classic() -> None:
    """Two of three are rebooted and one takes its time: nothing is launched before both are back, spare or not."""
    world, job_id = incidents.running(3, instances=4, policy=incidents.CLASSIC)
    world.training.abort_code = 1
    slow = ScriptedCheck(CheckOutcome.HEALTHY, seconds=1500)
    world.checks.script(world.model_instance(2), ScriptedCheck(CheckOutcome.REBOOT), slow)
    world.break_gpu(world.model_instance(0))
    world.break_gpu(world.model_instance(2))
    world.until(lambda: world.job(job_id).attempt == 2, "attempt 2 was not placed")
    assert [world.instance(world.model_instance(n)).status for n in range(3)] == [InstanceStatus.AVAILABLE] * 3
    assert dict(world.fleet.boots) == {world.model_instance(n).instance_id: 1 for n in (0, 2)}
    placed = world.job(job_id)
    assert placed.instances == tuple(world.model_instance(n).instance_id for n in range(3))
    assert (placed.status_at - placed.queued_at).total_seconds() > 1500
    incidents.ended(world, job_id)
    assert world.job(job_id).status is JobStatus.SUCCEEDED


def test_a_spare_is_used_before_the_repair_ends_under_adaptive() -> None:
    """The job runs again while the sick instance still reboots, and the healed one is free for others afterwards."""
    world, job_id = incidents.running(instances=3)
    world.break_gpu(world.model_instance(0))
    world.until(lambda: world.job(job_id).attempt == 2, "attempt 2 was not placed")
    assert world.instance(world.model_instance(0)).status is InstanceStatus.REBOOTING
    incidents.ended(world, job_id)
    healed = world.instance(world.model_instance(0))
    assert (healed.status, healed.reserved_for) == (InstanceStatus.AVAILABLE, "")
