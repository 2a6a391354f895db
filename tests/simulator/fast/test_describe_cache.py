"""What is kept of former looks is what a look would show, whenever it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import pytest
from gpu_recovery.aws.ec2 import MAINTENANCE_TAG, Ec2
from gpu_recovery.core.state_machine import replace_fields
from gpu_recovery.core.task import TaskFact
from gpu_recovery.ports.values import Ec2Instance
from gpu_recovery.reconciler.resync import is_newer

from sandbox.cluster.model.records import ModelInstance
from simulator.fast import describe_cache
from simulator.fast.describe_cache import Ec2DescribeCache, EcsDescribeCache, Shown
from simulator.faults.delivery import nothing
from simulator.world import World
from tests.simulator.incidents import INCIDENTS, QUICK

Read = Callable[[Sequence[str]], Sequence[TaskFact]]


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statuses of the tasks that were looked at; each look is compared with the production's own reading."""
    seen: list[str] = []
    tasks, instances, machines = EcsDescribeCache.tasks, EcsDescribeCache.instances, Ec2DescribeCache.instances

    def looked_at(self: EcsDescribeCache, task_ids: Sequence[str], now: datetime, read: Read) -> tuple[TaskFact, ...]:
        shown = tasks(self, task_ids, now, read)
        known = [one for one in task_ids if self.cluster.find_task(one, now) is not None]
        assert list(shown) == list(read(known))
        seen.extend(one.last_status for one in shown)
        return shown

    def instances_looked_at(
        self: EcsDescribeCache, wanted: Sequence[ModelInstance], now: datetime, read: Any
    ) -> list[Shown]:
        shown = instances(self, wanted, now, read)
        for one, (name, afresh) in zip(shown, read([one.arn for one in wanted]), strict=True):
            record = self.record_of(name)
            is_news = record is None or is_newer(afresh, record)
            assert one == (name, afresh if is_news else replace_fields(afresh, {"at": one[1].at}))
        return shown

    def machines_looked_at(self: Ec2DescribeCache, instance_ids: Sequence[str], read: Any) -> Mapping[str, Ec2Instance]:
        shown = machines(self, instance_ids, read)
        assert dict(shown) == dict(read(instance_ids))
        return shown

    monkeypatch.setattr(describe_cache, "MANY", 2)
    monkeypatch.setattr(EcsDescribeCache, "tasks", looked_at)
    monkeypatch.setattr(EcsDescribeCache, "instances", instances_looked_at)
    monkeypatch.setattr(Ec2DescribeCache, "instances", machines_looked_at)
    return seen


@pytest.mark.parametrize("name", [name for name in INCIDENTS if not name.endswith("user_stop")])
def test_a_look_shows_what_production_reads(name: str, compared: list[str]) -> None:
    """Of every task, every registration and every machine, through whole incidents; one that is over before the first
    look has none."""
    INCIDENTS[name](fidelity=QUICK)
    assert compared


@pytest.mark.parametrize("reason", ["no longer wanted", "é", "x" * 1024 + "y"], ids=["plain", "accented", "long"])
@pytest.mark.parametrize("heard", [True, False], ids=["told", "untold"])
def test_a_task_that_is_looked_at_all_its_life_is_shown_as_it_is(reason: str, heard: bool, compared: list[str]) -> None:
    """As it starts, runs, is to be stopped, and has ended; at times that no event tells to the microsecond."""
    world = World(instances=3, fidelity=QUICK)
    world.let_pass(0.123456)
    if not heard:
        world.delivery = nothing
    task = world.start_by_hand("run-1", 0, 1, world.model_instance(0))

    def look() -> None:
        for _ in range(2):
            world.actions.describe_tasks((task.task_id,))

    look()
    world.let_pass(12)
    look()
    world.stop_by_hand(task)
    task.stopped_reason = reason  # one of them is longer than any that the API takes
    look()
    world.let_pass(40)
    look()
    assert list(dict.fromkeys(compared)) == ["PENDING", "RUNNING", "STOPPED"]


def test_machines_are_looked_at_again_when_one_of_them_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is kept back, it is off, it is forgotten; a task that moves is none of their doing."""
    monkeypatch.setattr(describe_cache, "MANY", 2)
    world = World(instances=3, fidelity=QUICK)
    names = [one.instance_id for one in world.model_instances()]
    reads: list[int] = []
    read = Ec2.describe

    def counted(ids: Sequence[str]) -> Mapping[str, Ec2Instance]:
        reads.append(len(ids))
        return read(world.actions.ec2, ids)

    def look() -> Mapping[str, Ec2Instance]:
        shown = ec2_looks.instances(names, counted)
        assert dict(shown) == dict(read(world.actions.ec2, names))
        return shown

    ec2_looks = Ec2DescribeCache(world.fleet)
    look()
    world.start_by_hand("", 0, 1, world.model_instance(0))
    look()
    assert len(reads) == 1
    world.model_instance(1).tags[MAINTENANCE_TAG] = "true"
    world.fleet.changes += 1
    assert look()[names[1]].in_maintenance and len(reads) == 2
    world.fleet.terminate(world.model_instance(2))
    look()
    world.let_pass(7_200)
    assert set(look()) == set(names[:2])


@pytest.mark.parametrize("heard", [True, False], ids=["told", "untold"])
def test_a_registration_is_shown_as_seen_now_as_long_as_the_tables_do_not_know_it(
    heard: bool, compared: list[str]
) -> None:
    """A task takes its GPUs, its agent is cut off; no event says so, or one does."""
    world = World(instances=3, fidelity=QUICK)
    look = world.actions.container_instances
    before = dict(look())
    if not heard:
        world.delivery = nothing
    world.let_pass(5)
    world.start_by_hand("run-1", 0, 1, world.model_instance(0))
    world.fleet.disconnect(world.model_instance(1))
    for _ in range(2):
        world.let_pass(7)
        shown, now = dict(look()), world.timeline.now
        busy, deaf, idle = (world.model_instance(number).instance_id for number in range(3))
        assert shown[busy].gpus_free == 0 and not shown[deaf].agent_connected
        assert shown[idle] == before[idle]
        assert (shown[busy].at == now, shown[deaf].at == now) == (not heard, not heard)


def test_another_registration_of_a_machine_is_read_anew(compared: list[str]) -> None:
    """Of what was known nothing need be so: it may have other GPUs."""
    world = World(instances=2, fidelity=QUICK)
    look = world.actions.container_instances
    machine = world.model_instance(0)
    before = dict(look())[machine.instance_id]
    machine.arn, machine.version = machine.arn[:-4] + "beef", machine.version + 1
    machine.gpus = machine.gpus[:4]
    world.fleet.changes += 1
    after = dict(look())[machine.instance_id]
    assert (after.container_instance_id, after.gpus) == (before.container_instance_id[:-4] + "beef", 4)
