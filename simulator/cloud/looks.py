"""What looks at ECS and EC2 show, read once by the production parsers and kept for as long as nothing has changed.

The reconciler looks at everything each minute, and almost nothing has changed since. ECS counts every change of a task
or a container instance in its `version`, so what was read of a version holds for it; of an instance only the time of
the look is another. EC2 counts nothing, but all machines that run with nothing wrong and nothing planned look the same,
and a question about many of them has the same answer until `Fleet.changes` says that something has moved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from gpu_recovery.aws.event_fields import PROSE_CHARACTERS_MAX, Fields
from gpu_recovery.aws.task_facts import Overrides, overrides_of
from gpu_recovery.core.copies import altered
from gpu_recovery.core.events import InstanceObserved
from gpu_recovery.core.task import LastStatus, TaskFact
from gpu_recovery.ports import Machine, MachineStatus

from sandbox.cluster.model import Ec2State, Instance, Task, TaskStatus

from .fleet import Fleet

Shown = tuple[str, InstanceObserved]
TASKS_KEPT_MAX = 50_000
MANY = 50
"""Machines in one question, from which on its answer is worth keeping."""


class EcsLooks:
    """The facts of tasks and container instances by their versions. `read` is the production's own reading."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet, self.cluster = fleet, fleet.cluster
        self._tasks: dict[str, tuple[int, TaskFact]] = {}
        self._last: tuple[Sequence[str], int, tuple[TaskFact, ...]] | None = None
        """The last question about tasks that all live, when it was asked, and its answer."""
        self._instances: dict[str, tuple[tuple[Any, ...], Shown]] = {}
        self._overrides: dict[str, Overrides] = {}

    def overrides(self, told: Fields) -> Overrides:
        """What the task was given: it is read once, for it never changes."""
        arn = told.text("taskArn")
        known = self._overrides.get(arn)
        if known is None:
            if len(self._overrides) > TASKS_KEPT_MAX:
                self._overrides.clear()
            known = self._overrides[arn] = overrides_of(told)
        return known

    def told(self, shown: Shown) -> None:
        """An event has said how an instance is: if that is still so, a look would show it."""
        instance = self.cluster.find_container_instance(shown[1].container_instance_id)
        if instance is not None and instance.version == shown[1].ecs_version:
            self._instances[instance.instance_id] = (_state_of(instance), shown)

    def told_of_task(self, fact: TaskFact) -> None:
        """An event has said how a task is: if it is that still and runs, a look would show it, to the microsecond."""
        task = self.cluster.tasks.get(fact.task_id)
        if task is not None and task.version == fact.version and task.last_status is TaskStatus.RUNNING:
            changes = {"at": task.started_at or task.created_at, "created_at": task.created_at}
            self._tasks[task.task_id] = (task.version, altered(fact, changes))

    def _gone_on(self, task: Task) -> bool:
        """Whether all that a look would show of the task is known: of one that lives hardly anything ever changes."""
        known, reason = self._tasks.get(task.task_id), task.stopped_reason or ""
        if known is None or not task.is_live or not reason.isascii() or len(reason) > PROSE_CHARACTERS_MAX:
            return False
        changes = {
            "last_status": str(task.last_status), "version": task.version, "at": task.started_at or task.created_at,
            "stop_code": str(task.stop_code or ""), "stopped_reason": reason,
        }  # fmt: skip
        self._tasks[task.task_id] = (task.version, altered(known[1], changes))
        return True

    def tasks(
        self, task_ids: Sequence[str], now: datetime, read: Callable[[Sequence[str]], Sequence[TaskFact]]
    ) -> tuple[TaskFact, ...]:
        """What DescribeTasks shows of the tasks that ECS has not forgotten, in the order asked for."""
        if self._last is not None and self._last[1] == self.fleet.changes and self._last[0] == task_ids:
            return self._last[2]
        if len(self._tasks) > TASKS_KEPT_MAX:
            self._tasks.clear()
        known = [task for task in (self.cluster.find_task(one, now) for one in task_ids) if task is not None]
        others = [task for task in known if self._tasks.get(task.task_id, (0,))[0] != task.version]
        news = [task for task in others if not self._gone_on(task)]
        for task, fact in zip(news, read([task.task_id for task in news]), strict=True):
            self._tasks[task.task_id] = (task.version, fact)
        answer = tuple(self._tasks[task.task_id][1] for task in known)
        if len(answer) == len(task_ids) and all(fact.last_status != LastStatus.STOPPED for fact in answer):
            self._last = (task_ids, self.fleet.changes, answer)
        return answer

    def instances(
        self, shown: Sequence[Instance], now: datetime, read: Callable[[Sequence[str]], Sequence[Shown]]
    ) -> list[Shown]:
        """What DescribeContainerInstances shows of each of `shown`."""
        news = [one for one in shown if self._instances.get(one.instance_id, (None,))[0] != _state_of(one)]
        for one, fact in zip(news, read([one.arn for one in news]), strict=True):
            self._instances[one.instance_id] = (_state_of(one), fact)
        told = (self._instances[one.instance_id][1] for one in shown)
        return [(name, fact if fact.at == now else _seen_at(now, fact)) for name, fact in told]


def _seen_at(now: datetime, one: InstanceObserved) -> InstanceObserved:
    """As `dataclasses.replace`, which takes twice as long: each round makes one for every instance there is."""
    return InstanceObserved(
        at=now, ecs_version=one.ecs_version, ecs_status=one.ecs_status, agent_connected=one.agent_connected,
        container_instance_id=one.container_instance_id, gpus=one.gpus, availability_zone=one.availability_zone,
        gpus_free=one.gpus_free, looked=one.looked,
    )  # fmt: skip


def _state_of(instance: Instance) -> tuple[Any, ...]:
    return instance.version, instance.status, instance.agent_connected, len(instance.live), len(instance.gpus)


class Ec2Looks:
    """What EC2 shows of machines. `read` is the production's own reading."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet, self.cluster = fleet, fleet.cluster
        self._last: tuple[Sequence[str], tuple[Any, ...], Mapping[str, Machine]] | None = None
        self._at = -1
        """The count of changes at which the last answer was as good as new."""

    def _shown(self, instance_ids: Sequence[str]) -> tuple[Any, ...]:
        """All of the machines that an answer is made of and that can change."""
        every = map(self.cluster.instances.__getitem__, instance_ids)
        return tuple([(one.ec2_state, one.lifecycle, one.root_device, *one.tags.items()) for one in every])

    def machines(
        self, instance_ids: Sequence[str], read: Callable[[Sequence[str]], Mapping[str, Machine]]
    ) -> Mapping[str, Machine]:
        """What DescribeInstances shows, each in the order in which EC2 gives them."""
        if len(instance_ids) < MANY:
            return read(instance_ids)
        same = self._last is not None and self._last[0] == instance_ids
        if same and self._last is not None and self._at == self.fleet.changes:
            return self._last[2]
        shown = self._shown(instance_ids)
        if not (same and self._last is not None and self._last[1] == shown):
            found = read(instance_ids)
            if not all(one[0] is Ec2State.RUNNING for one in shown):
                return found  # EC2 forgets those that are gone
            self._last = (instance_ids, shown, found)
        self._at = self.fleet.changes
        return self._last[2]

    def statuses(
        self, instance_ids: Sequence[str], at_once: int, read: Callable[[Sequence[str]], Mapping[str, MachineStatus]]
    ) -> Mapping[str, MachineStatus]:
        """What DescribeInstanceStatus shows, asked of `at_once` machines at a time: in each answer they come in the
        order in which they were launched."""
        machines = {one.instance_id: one for one in self.cluster.known_to_ec2(self.fleet.timeline.now)}
        if not all(one in machines for one in instance_ids):
            return read(instance_ids)  # EC2 refuses such a question whole, and then it is put in parts
        plain = [one for one in instance_ids if _is_plain(machines[one])]
        same = read(plain[:1])[plain[0]] if plain else None
        others = read([one for one in instance_ids if not _is_plain(machines[one])])
        order = {one: number for number, one in enumerate(machines)}
        found: dict[str, MachineStatus] = {}
        for start in range(0, len(instance_ids), at_once):
            for one in sorted(instance_ids[start : start + at_once], key=order.__getitem__):
                status = others.get(one, same)
                assert status is not None
                found[one] = status
        return found


def _is_plain(machine: Instance) -> bool:
    return machine.ec2_state is Ec2State.RUNNING and not machine.impaired and not machine.scheduled
