"""What is kept of former looks is what a look would show, whenever it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import pytest
from gpu_recovery.core.task import TaskFact
from gpu_recovery.ports import Machine

from simulator.cloud import looks
from simulator.cloud.looks import Ec2Looks, EcsLooks
from simulator.world import World
from tests.simulator.incidents import INCIDENTS, QUICK

Read = Callable[[Sequence[str]], Sequence[TaskFact]]


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statuses of the tasks that were looked at; each look is compared with the production's own reading."""
    seen: list[str] = []
    tasks, machines = EcsLooks.tasks, Ec2Looks.machines

    def looked_at(self: EcsLooks, task_ids: Sequence[str], now: datetime, read: Read) -> tuple[TaskFact, ...]:
        shown = tasks(self, task_ids, now, read)
        known = [one for one in task_ids if self.cluster.find_task(one, now) is not None]
        assert list(shown) == list(read(known))
        seen.extend(one.last_status for one in shown)
        return shown

    def machines_looked_at(self: Ec2Looks, instance_ids: Sequence[str], read: Any) -> Mapping[str, Machine]:
        shown = machines(self, instance_ids, read)
        assert dict(shown) == dict(read(instance_ids))
        return shown

    monkeypatch.setattr(looks, "MANY", 2)
    monkeypatch.setattr(EcsLooks, "tasks", looked_at)
    monkeypatch.setattr(Ec2Looks, "machines", machines_looked_at)
    return seen


@pytest.mark.parametrize("name", [name for name in INCIDENTS if not name.endswith("user_stop")])
def test_a_look_shows_what_production_reads(name: str, compared: list[str]) -> None:
    """Of every task and every machine, through whole incidents; one that is over before the first look has none."""
    INCIDENTS[name](economy=QUICK)
    assert compared


def test_a_task_that_is_looked_at_all_its_life_is_shown_as_it_is(compared: list[str]) -> None:
    """As it starts, runs, is to be stopped for a reason that no line holds, and has ended."""
    world = World(instances=3, economy=QUICK)
    task = world.start_by_hand("", 0, 1, world.machine(0))
    for change in (lambda: None, lambda: world.let_pass(12.345678), lambda: world.stop_by_hand(task, "é" * 900)):
        change()
        world.actions.describe_tasks((task.task_id,))
        world.actions.describe_tasks((task.task_id,))
    world.let_pass(40)
    world.actions.describe_tasks((task.task_id,))
    assert list(dict.fromkeys(compared)) == ["PENDING", "RUNNING", "STOPPED"]
