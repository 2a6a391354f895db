"""Gangs of any admitted size: their ranks are ended, confirmed and launched again within the limits of AWS.

The store refuses what DynamoDB refuses. A hung network file system makes every rank of a gang unkillable at once.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from gpu_recovery.core import commands
from gpu_recovery.core.attempt import Plan
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.identifiers import attempt_id
from gpu_recovery.core.instance.record import Instance
from gpu_recovery.core.job.adoption import Adoption
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.job.spec import NNODES_MAX
from gpu_recovery.core.state_machine import PendingCommand
from gpu_recovery.execution import execute
from gpu_recovery.execution.context import RANKS_AT_ONCE
from gpu_recovery.execution.health_checks import SUMMARIES_BYTES_MAX
from gpu_recovery.reconciler.reconcile import process_due_job

from simulator.cloud import rate_limits
from simulator.cloud.rate_limits import Costs, Limit
from simulator.fast.fidelity import LARGE
from simulator.memory_store.store import MemoryStore
from simulator.world import World
from tests.simulator.incidents import ADAPTIVE, count_operations

UNLIMITED = replace(ADAPTIVE, fleet_repairs_max=1_000_000, repair_budget_percent=100)
"""The policy without limits of repairs: the gang is back within the hour."""
COSTS = Costs(call_s=0.04, store_s=0.02)


def stuck_gang(nnodes: int, **given: Any) -> tuple[World, str]:
    """Return a world in which rank 0 of a running gang crashes, and no other rank can be stopped."""
    world = World(**{"instances": nnodes, "fidelity": LARGE, **given})
    job_id = world.submit(nnodes)
    world.until_status(job_id, JobStatus.RUNNING)
    world.fleet.stuck.update(world.job(job_id).instances[1:])
    world.exit(job_id, 0, 139)
    world.until_status(job_id, JobStatus.STOPPING)
    return world, job_id


def asked(world: World, job_id: str) -> int:
    """Return the number of instances that were asked to end the rank of the first attempt."""
    return sum(attempt_id(job_id, 1) in instance.ended_for for instance in world.instances())


def until_reboots_are_ordered(world: World, job_id: str) -> None:
    """Let time pass until the job has asked each instance for the reboot, and its command is removed."""

    def are_ordered() -> bool:
        job = world.job(job_id)
        return job.stop_tries == 2 and not job.commands and asked(world, job_id) == len(job.instances) - 1

    world.until(are_ordered, "not every reboot was ordered", 3_600)


def relaunched(world: World, job_id: str, limit_s: float) -> None:
    """Let time pass until the second attempt runs, and check that the job did not fail on the way."""

    def is_over() -> bool:
        job = world.job(job_id)
        return job.status is JobStatus.FAILED or (job.status is JobStatus.RUNNING and job.attempt == 2)

    world.until(is_over, "no second attempt", limit_s)
    assert world.job(job_id).status is JobStatus.RUNNING, world.job(job_id).reason


@pytest.mark.parametrize(
    "nnodes", [8, 32, pytest.param(64, marks=pytest.mark.full), pytest.param(128, marks=pytest.mark.full)]
)
def test_healthy_machines_never_end_a_job_however_long_their_reboots_take(nnodes: int) -> None:
    """A fifth of the fleet, and at most 20 machines, may begin a reboot in an hour.

    All reboots take longer than any deadline of a job or a hold: those of 32 to 64 machines five hours.
    """
    world, job_id = stuck_gang(nnodes)
    relaunched(world, job_id, 12 * 3_600)
    assert sum(world.fleet.boots.values()) == nnodes - 1
    assert not world.failures


@pytest.mark.parametrize(
    "nnodes",
    [
        64,
        pytest.param(417, marks=pytest.mark.slow),
        pytest.param(512, marks=pytest.mark.full),
        pytest.param(1_024, marks=pytest.mark.full),
        pytest.param(3_000, marks=pytest.mark.full),
    ],
)
def test_reboots_of_a_gang_of_any_size_are_ordered_by_bounded_writes(nnodes: int) -> None:
    """One command in the record of the job stands for all of them, so neither an item nor an expression grows."""
    world, job_id = stuck_gang(nnodes)
    until_reboots_are_ordered(world, job_id)
    world.let_pass(1_800)
    assert world.job(job_id).status is JobStatus.STOPPING and not world.failures
    waiting = [one for one in world.instances() if one.held is not None]
    limit = min(ADAPTIVE.fleet_repairs_max, max(1, nnodes // 5))
    assert len(waiting) >= nnodes - 1 - 2 * limit


@pytest.mark.parametrize(
    "nnodes",
    [64, pytest.param(512, marks=pytest.mark.full), pytest.param(1_024, marks=pytest.mark.full)],
)
def test_a_large_gang_comes_back_within_the_rates_and_timeouts_of_aws(nnodes: int) -> None:
    """Launch, stop, reboot, check, release and the next launch all end, though calls take time and are limited."""
    world, job_id = stuck_gang(nnodes, policy=UNLIMITED, costs=COSTS)
    relaunched(world, job_id, 3 * 3_600)
    assert sum(world.fleet.boots.values()) >= nnodes - 1


def after_a_launch(world: World, job_id: str, attempt: int, limit_s: float) -> None:
    """Let time pass until this attempt runs, and check that each of its ranks runs once."""

    def is_over() -> bool:
        job = world.job(job_id)
        return job.status is JobStatus.FAILED or (job.status is JobStatus.RUNNING and job.attempt == attempt)

    world.until(is_over, f"attempt {attempt} does not run", limit_s)
    job = world.job(job_id)
    assert job.status is JobStatus.RUNNING, job.reason
    assert len(world.ranks(job_id)) == len(job.instances)


@pytest.mark.parametrize(
    ("nnodes", "slower"),
    [
        (64, 1),
        pytest.param(64, 8, marks=pytest.mark.slow),
        pytest.param(512, 1, marks=pytest.mark.full),
        pytest.param(1_024, 1, marks=pytest.mark.full),
        pytest.param(NNODES_MAX, 1, marks=pytest.mark.full),
    ],
)
def test_each_phase_of_a_large_gang_ends_by_however_many_functions(nnodes: int, slower: int) -> None:
    """Launch, a crash, all ranks unkillable, a cancellation: no function is killed, and no command begins anew.

    With calls that take eight times as long, 64 ranks keep as many functions busy as 512.
    """
    costs = Costs(call_s=0.03 * slower, store_s=0.015 * slower)
    world = World(instances=nnodes, fidelity=LARGE, policy=UNLIMITED, costs=costs)
    calls = count_operations(world)
    job_id = world.submit(nnodes)
    after_a_launch(world, job_id, 1, 600)
    assert calls["RunTask"] <= nnodes + RANKS_AT_ONCE
    calls.clear()
    world.exit(job_id, 0, 139)
    after_a_launch(world, job_id, 2, 1_800)
    assert calls["StopTask"] <= nnodes + RANKS_AT_ONCE
    assert calls["RunTask"] <= 2 * (nnodes + RANKS_AT_ONCE)  # each instance has a check, and then its rank
    world.fleet.stuck.update(world.job(job_id).instances[1:])
    world.exit(job_id, 0, 139)
    after_a_launch(world, job_id, 3, 3 * 3_600)
    assert sum(world.fleet.boots.values()) >= nnodes - 1
    calls.clear()
    world.cancel(job_id)
    assert world.until_end(job_id).status is JobStatus.CANCELED
    assert calls["StopTask"] <= nnodes + RANKS_AT_ONCE and not world.fleet.running()
    assert not world.invocations.killed and not world.failures


def test_reboots_that_ec2_throttles_for_long_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last reboot is asked for ten minutes after the first. No check looks for it before."""
    slowly = "EC2", Limit(2, 1 / 30)
    monkeypatch.setattr(rate_limits, "LIMITS", {**rate_limits.LIMITS, "RebootInstances": slowly})
    world, job_id = stuck_gang(24, policy=UNLIMITED, costs=Costs())
    relaunched(world, job_id, 3_600)
    assert world.meter is not None and world.meter.refused > 24
    assert sum(world.fleet.boots.values()) == 23
    reasons = [entry.reason for instance in world.instances() for entry in instance.history]
    assert not any("never seen to leave" in reason for reason in reasons)


def test_a_command_that_no_function_can_finish_in_its_time_goes_on_where_it_was() -> None:
    """250 requests take longer than a function runs: the next function makes the others, and none is made twice."""
    world, job_id = stuck_gang(250, policy=UNLIMITED, costs=Costs(store_s=2.0))
    world.until(lambda: world.job(job_id).stop_tries == 1, "the first deadline did not come")
    world.asleep["reconciler"] = world.timeline.now + timedelta(days=1)
    counted, before = count_calls(world), -1
    world.let_pass(ADAPTIVE.stop_timeout_s)
    while asked(world, job_id) < 249:
        assert asked(world, job_id) > before, "the function asked no further instance"
        before = asked(world, job_id)
        world.invocations.run("reconciler", lambda: process_due_job(world.recovery, job_id))
        world.let_pass(60)
    assert counted["load_instances"] == 1 + 2, "one reads what a reboot would end, and two work at the command"
    assert {instance.epoch for instance in world.instances()} == {0, 1}
    assert not world.job(job_id).commands and not world.invocations.killed


@pytest.mark.parametrize("nnodes", [128, pytest.param(1_024, marks=pytest.mark.full)])
def test_the_job_is_read_as_often_for_a_thousand_reboots_as_for_one(nnodes: int) -> None:
    """Each instance costs the same calls, and the record of the job, 165 KB for 1,024 ranks, is not read for each."""
    world, job_id = stuck_gang(nnodes)
    world.until(lambda: world.job(job_id).stop_tries == 1, "the first deadline did not come")
    counted = count_calls(world)
    until_reboots_are_ordered(world, job_id)
    assert counted["load_job"] <= 12
    assert counted["remove_finished_job_commands"] <= 6
    of_instances = sum(
        counted[name] for name in ("load_instance", "save_instance", "remove_finished_instance_commands")
    )
    assert of_instances <= 8 * nnodes


@pytest.mark.parametrize("nnodes", [64, pytest.param(512, marks=pytest.mark.full)])
def test_ranks_that_a_user_starts_within_a_second_contend_with_none_of_the_others(nnodes: int) -> None:
    """Each rank writes items of its own. The record of the job and its plan are written a few times for all of them."""
    world = World(instances=nnodes, adoption=Adoption.RECOVER, fidelity=LARGE)
    counted = count_calls(world)
    for rank, machine in enumerate(world.model_instances()):
        world.start_by_hand("run-1", rank, nnodes, machine)
    world.until(lambda: world.store.load_job("run-1") is not None, "it was not adopted")
    job = world.until_status("run-1", JobStatus.RUNNING)
    assert counted["save_job"] + counted["record_tasks"] + counted["begin_attempt"] <= 6
    assert (counted["record_task"], counted["add_running"], counted["claim_instance"]) == (nnodes,) * 3
    assert counted["load_progress"] <= 6, "each rank reads the progress of all ranks"
    assert all(world.store.plans["run-1", 1].task_ids), "the plan does not show the tasks that were seen"
    assert not world.failures and "" not in job.instances and len(set(job.instances)) == nnodes
    assert all(one.claims["run-1"].gpus == 8 for one in world.instances())
    world.exit("run-1", 3, 139)
    relaunched(world, "run-1", 3_600)


@pytest.mark.parametrize("nnodes", [2 * RANKS_AT_ONCE + 30, pytest.param(1_024, marks=pytest.mark.full)])
def test_a_launch_has_recorded_every_task_when_it_ends(nnodes: int) -> None:
    """No event and no poll was needed to find them."""
    world = World(instances=nnodes, fidelity=LARGE)
    job_id = world.submit(nnodes)
    world.until_status(job_id, JobStatus.SUBMITTED)
    plan = world.store.load_plan(job_id, 1)
    assert plan is not None and all(plan.task_ids) and len(set(plan.task_ids)) == nnodes


@pytest.mark.parametrize("nnodes", [200, pytest.param(1_024, marks=pytest.mark.full)])
def test_each_instance_of_a_large_gang_is_checked_once_by_however_many_functions(nnodes: int) -> None:
    """The checks of 200 instances take longer than a function runs at such a slow table."""
    world = World(instances=nnodes, fidelity=LARGE, costs=Costs(call_s=0.04, store_s=100 / nnodes))
    job_id = world.submit(nnodes)
    world.until_status(job_id, JobStatus.RUNNING)
    world.exit(job_id, 0, 139)
    relaunched(world, job_id, 3 * 3_600)
    assert {instance.checks for instance in world.instances()} == {1}


def test_the_summaries_of_3000_checks_share_200_kilobytes() -> None:
    """The registry of the check's image was out of reach, so each check has a long summary."""
    store, instances = MemoryStore(), tuple(f"i-{rank:017x}" for rank in range(NNODES_MAX))
    store.begin_attempt(Plan("run-1", 1, instances, (0,) * NNODES_MAX, task_ids=("t",) * NNODES_MAX))
    recovery = replace(World(instances=1).recovery, store=store)
    summary = "CannotPullContainerError: \u65e0\u6cd5\u8fde\u63a5 " * 20
    context = recovery._context()
    for instance_id in instances:
        order = commands.ReportCheck("run-1", 1, CheckOutcome.INCONCLUSIVE, summary, False)
        pending = PendingCommand(f"{instance_id}/1/1", order, context.now)
        execute(context, Instance(instance_id, context.now), pending)
    progress = store.load_progress("run-1", 1)
    assert progress is not None and progress.all_checked
    assert "CannotPullContainerError" in progress.checked[NNODES_MAX - 1].summary
    assert sum(len(each.summary.encode()) for each in progress.checked.values()) <= SUMMARIES_BYTES_MAX


class CountedStore:
    """A store that counts its calls."""

    def __init__(self, store: Any, counted: Counter[str]) -> None:
        self._store, self._counted = store, counted

    def __getattr__(self, name: str) -> Any:
        self._counted[name] += 1
        return getattr(self._store, name)


def count_calls(world: World) -> Counter[str]:
    """Count the calls of the store from now on."""
    counted = Counter[str]()
    world.recovery = replace(world.recovery, store=CountedStore(world.recovery.store, counted))
    return counted
