"""A reconcile cycle ends before its function is killed, and compares the cluster first, however much is due."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from math import ceil
from typing import Any

import pytest
from gpu_recovery.aws.ecs import DESCRIBED_AT_ONCE
from gpu_recovery.core import commands
from gpu_recovery.core.instance.record import Instance, InstanceStatus
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.state_machine import PendingCommand
from gpu_recovery.reconciler.reconcile import process_due_instance, process_due_instances
from gpu_recovery.reconciler.resync import RESYNCS
from gpu_recovery.recovery import Recovery

from simulator.cloud.rate_limits import TIMEOUT_S, Costs
from simulator.cloud.workloads import ScriptedCheck
from simulator.fast.fidelity import UNCHECKED
from simulator.faults.delivery import nothing
from simulator.world import World
from tests.simulator.incidents import count_operations
from tests.simulator.test_reconcile_cycle import Half
from tests.tiers import scaled


def costs_of(slower: float = 1) -> Costs:
    """Return 50 ms for a call of ECS and EC2 and 10 ms for a call of DynamoDB, times `slower`, and AWS's rate limits.

    With slower calls few records take as long as many.
    """
    return Costs(call_s=0.05 * slower, store_s=0.01 * slower)


RECONCILER_S = TIMEOUT_S["reconciler"]


class Calls:
    """Counts the calls of a world by operation, and the resyncs that ran."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.operations = count_operations(world)
        self.resyncs: list[str] = []
        monkeypatch.setattr("simulator.world.RESYNCS", [self._seen(resync) for resync in RESYNCS])

    def _seen(self, resync: Any) -> Any:
        def run(cycle: Any) -> None:
            self.operations.clear()  # the due records come after the last resync
            resync(cycle)
            self.operations.clear()
            self.resyncs.append(resync.__name__)

        return run


def without_reconciler(world: World) -> None:
    """Let the clock no longer trigger the reconciler."""
    world.asleep["reconciler"] = world.timeline.start + timedelta(days=9)


def under_check(instances: int, slower: int = 1) -> World:
    """A world in which every instance of a gang has a health check that does not end, and its poll is due."""
    world = World(instances=instances, fidelity=UNCHECKED, costs=costs_of(slower))
    job_id = world.submit(instances)
    world.let_pass(300)
    assert world.job(job_id).status is JobStatus.RUNNING
    for instance in world.model_instances():
        world.checks.script(instance, ScriptedCheck(outcome=None))
    without_reconciler(world)
    world.exit(job_id, 0, 134)
    world.let_pass(700)
    assert {record.status for record in world.instances()} == {InstanceStatus.CHECKING}
    assert len(due(world)) == instances
    return world


def due(world: World) -> Sequence[str]:
    """The instances that are due, the longest overdue first."""
    return list(world.store.due_instances(world.timeline.now))


def round_s(world: World) -> float:
    """Run one cycle; return the seconds that it took. The function must neither fail nor be killed."""
    before = len(world.invocations.killed), len(world.failures)
    world.functions.invoke("reconciler", world.run_reconciler, tried=2)
    assert (len(world.invocations.killed), len(world.failures)) == before, world.failures[before[1] :]
    assert world.meter is not None
    return world.meter.last_s


@pytest.mark.parametrize(
    ("instances", "slower"),
    [
        (128, 4),
        pytest.param(512, 1, marks=pytest.mark.full),
        pytest.param(2_048, 1, marks=pytest.mark.full),
    ],
)
def test_polls_that_are_due_together_end_in_a_third_of_the_time_and_after_the_resyncs(
    instances: int, slower: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One by one, 2,048 polls took longer than a function may run, and no resync ran in that minute."""
    world = under_check(instances, slower)
    calls = Calls(world, monkeypatch)
    assert round_s(world) < RECONCILER_S / 3
    assert calls.resyncs == [resync.__name__ for resync in RESYNCS]
    # The gang's own poll is due too, and asks EC2 about all instances.
    asked = {name: times for name, times in calls.operations.items() if name not in ("DynamoDB", "DescribeInstances")}
    assert asked == {"DescribeTasks": ceil(instances / DESCRIBED_AT_ONCE)}
    assert calls.operations["DynamoDB"] < 3 * instances + 20
    assert due(world) == []


def test_jobs_that_are_due_together_are_polled_in_a_third_of_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each of them has its own calls, side by side. The fewer jobs, the longer a call: one by one takes as long."""
    jobs = scaled(fast=128, default=128, full=512)
    world = World(instances=jobs, fidelity=UNCHECKED, costs=costs_of(512 / jobs))
    for _ in range(jobs):
        world.submit(1)
    world.let_pass(300)
    without_reconciler(world)
    world.let_pass(200)
    assert len(list(world.store.due_jobs(world.timeline.now))) == jobs
    assert round_s(world) < RECONCILER_S / 3
    assert list(world.store.due_jobs(world.timeline.now)) == []


def test_a_cycle_ends_in_time_and_the_next_one_begins_with_what_is_overdue_for_longest() -> None:
    """A call of DynamoDB takes two seconds here, so the polls of 200 instances take more than one cycle."""
    world = under_check(200)
    assert world.meter is not None
    world.meter.costs = Costs(store_s=2.0)
    waiting, rounds = due(world), 0
    while waiting and rounds < 5:
        assert round_s(world) < RECONCILER_S  # records begin until 40 s are left, and those that have begun end
        left, rounds = due(world), rounds + 1
        assert len(left) < len(waiting)
        assert left == waiting[len(waiting) - len(left) :]
        waiting = left
    assert rounds > 1 and waiting == []


def test_resyncs_with_much_to_deliver_leave_time_for_due_records() -> None:
    """Hundreds of lost registrations take minutes here. The poll of a job that is due is done in the first cycle."""
    world = World(instances=2, fidelity=UNCHECKED, costs=Costs(store_s=1.0))
    job_id = world.submit(1)
    world.let_pass(100)
    without_reconciler(world)
    world.delivery = nothing
    for _ in range(400):
        world.fleet.launch(8)
    world.let_pass(200)
    before = world.job(job_id).look_at
    assert round_s(world) < RECONCILER_S
    known = len(world.instances())
    assert 2 < known < 402
    assert world.job(job_id).look_at != before
    world.let_pass(60)
    round_s(world)
    assert len(world.instances()) > known


def test_a_check_that_ended_unseen_is_found_by_the_call_that_asks_about_all() -> None:
    """No event arrives. The verdict reaches the instance without another question to ECS."""
    world = World(instances=2)
    job_id = world.submit(2)
    world.until_status(job_id, JobStatus.RUNNING)
    without_reconciler(world)
    world.exit(job_id, 0, 134)
    world.until(lambda: all(_checked_by(record) for record in world.instances()), "no checks")
    world.delivery = nothing
    world.let_pass(1_000)
    assert {record.status for record in world.instances()} == {InstanceStatus.CHECKING}
    asked: list[int] = []
    real = world.actions.ecs.describe_tasks

    def describe_tasks(task_ids: Sequence[str], unreadable: list[Exception] | None = None) -> Any:
        asked.append(len(task_ids))
        return real(task_ids, unreadable)

    world.actions.ecs.describe_tasks = describe_tasks  # type: ignore[method-assign]
    assert process_due_instances(world.recovery) == []
    assert {record.status for record in world.instances()} == {InstanceStatus.AVAILABLE}
    assert asked[0] == 2 and 1 not in asked[1:]


def _checked_by(record: Instance) -> str:
    return record.check.task_id if record.check is not None else ""


def test_the_poll_of_a_check_that_waits_for_its_start_asks_ecs_nothing() -> None:
    """It has no task that ECS could list. The command that starts it finds a task that was started before."""
    world = World(instances=1)
    job_id = world.submit(1)
    world.until_status(job_id, JobStatus.RUNNING)
    without_reconciler(world)
    world.exit(job_id, 0, 134)
    world.until(lambda: bool(_checked_by(world.instances()[0])), "no check")
    record = world.instances()[0]
    assert record.check is not None
    waiting = replace(
        record,
        check=replace(record.check, task_id=""),
        commands=(_to_start(record, world),),
        look_at=world.timeline.now,
    )
    world.store.save_instance(waiting)
    world.actions.ecs = Half(world.actions.ecs, tasks_started_by=_refuse)
    process_due_instance(world.recovery, world.instances()[0])
    assert world.instances()[0].look_at != waiting.look_at


def _to_start(record: Instance, world: World) -> PendingCommand:
    assert record.check is not None
    later = world.timeline.now + timedelta(minutes=1)
    return PendingCommand(f"{record.instance_id}/{record.version}/0", commands.RunCheck(record.check.check_id), later)


def _refuse(*_: Any) -> Any:
    raise AssertionError("ECS was asked")


def test_due_records_are_loaded_in_one_call() -> None:
    """Only the commands of a function that died, once they are taken over, change a record in between."""
    world = World(instances=3)
    for record in world.instances():
        world.store.save_instance(replace(record, deadline_at=world.timeline.now))
    reads: list[Any] = []
    store = world.recovery.store

    def load_instances(names: Sequence[str]) -> Any:
        reads.append(tuple(names))
        return store.load_instances(names)

    def load_instance(name: str) -> Any:
        reads.append(name)
        return store.load_instance(name)

    half: Any = Half(store, load_instance=load_instance, load_instances=load_instances)
    recovery: Recovery = replace(world.recovery, store=half)
    process_due_instances(recovery)
    assert sorted(map(len, map(list, reads[:1]))) == [3]
    assert sorted(reads[1:]) == sorted(reads[0])  # each event loads the record that it is about
