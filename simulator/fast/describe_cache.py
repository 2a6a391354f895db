"""What looks at ECS and EC2 show, read once by the production parsers and kept for as long as nothing has changed.

The reconciler looks at everything each minute, and almost nothing has changed since. ECS counts every change of a task
or a container instance in its `version`, so what was read of a version holds for it; of an instance only the time of
the look is another, which is told of nobody whom the tables know as they are. EC2 counts nothing, but all machines that
run with nothing wrong and nothing planned look the same, and a question about many of them has the same answer until
`VirtualFleet.changes` says that something has moved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from gpu_recovery.aws.ecs_events import Overrides, overrides_of
from gpu_recovery.aws.fields import PROSE_CHARACTERS_MAX, Fields
from gpu_recovery.core.events import InstanceObserved
from gpu_recovery.core.instance.record import Instance as Record
from gpu_recovery.core.state_machine import replace_fields
from gpu_recovery.core.task import LastStatus, TaskFact
from gpu_recovery.ports.values import Ec2Instance, Ec2InstanceStatus
from gpu_recovery.reconciler.resync import is_newer

from sandbox.cluster.model.records import ModelInstance, Task
from sandbox.cluster.model.statuses import Ec2State, TaskStatus
from simulator.cloud.fleet import VirtualFleet

Shown = tuple[str, InstanceObserved]
TASKS_KEPT_MAX = 50_000
MANY = 50
"""Machines in one question, from which on its answer is worth keeping."""


class EcsDescribeCache:
    """The facts of tasks and container instances by their versions. `read` is the production's own reading.

    record_of: what the tables know of an instance at this moment.
    """

    def __init__(self, fleet: VirtualFleet, record_of: Callable[[str], Record | None]) -> None:
        self.fleet, self.cluster, self.record_of = fleet, fleet.cluster, record_of
        self._tasks: dict[str, TaskFact] = {}
        self._last: tuple[Sequence[str], int, tuple[TaskFact, ...]] | None = None
        """The last question about tasks that all live, when it was asked, and its answer."""
        self._instances: dict[str, Shown] = {}
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

    def instance_reported(self, shown: Shown) -> None:
        """An event has said how an instance is: if that is still so, a look would show it."""
        instance = self.cluster.find_container_instance(shown[1].container_instance_id)
        if instance is not None and instance.version == shown[1].ecs_version:
            self._instances[instance.instance_id] = shown

    def task_reported(self, fact: TaskFact) -> None:
        """An event has said how a task is: if it is that still and runs, a look would show it, to the microsecond."""
        task = self.cluster.tasks.get(fact.task_id)
        if task is not None and task.version == fact.version and task.last_status is TaskStatus.RUNNING:
            changes = {"at": task.started_at or task.created_at, "created_at": task.created_at}
            self._tasks[task.task_id] = replace_fields(fact, changes)

    def _gone_on(self, task: Task) -> bool:
        """Whether all that a look would show of the task is known: of one that lives hardly anything ever changes."""
        known, reason = self._tasks.get(task.task_id), task.stopped_reason or ""
        if known is None or not task.is_live or not reason.isascii() or len(reason) > PROSE_CHARACTERS_MAX:
            return False
        changes = {
            "last_status": str(task.last_status),
            "version": task.version,
            "at": task.started_at or task.created_at,
            "stop_code": str(task.stop_code or ""),
            "stopped_reason": reason,
        }
        self._tasks[task.task_id] = replace_fields(known, changes)
        return True

    def tasks(
        self, task_ids: Sequence[str], now: datetime, read: Callable[[Sequence[str]], Sequence[TaskFact]]
    ) -> tuple[TaskFact, ...]:
        """What DescribeTasks shows of the tasks that ECS has not forgotten, in the order asked for."""
        if self._last is not None and self._last[1] == self.fleet.changes and self._last[0] == task_ids:
            return self._last[2]
        if len(self._tasks) > TASKS_KEPT_MAX:
            self._tasks.clear()
        kept, find = self._tasks, self.cluster.find_task
        known = [task for one in task_ids if (task := find(one, now)) is not None]
        others = [task for task in known if (fact := kept.get(task.task_id)) is None or fact.version != task.version]
        news = [task for task in others if not self._gone_on(task)]
        for task, fact in zip(news, read([task.task_id for task in news]), strict=True):
            kept[task.task_id] = fact
        answer = tuple([kept[task.task_id] for task in known])
        if len(answer) == len(task_ids) and LastStatus.STOPPED not in {fact.last_status for fact in answer}:
            self._last = (task_ids, self.fleet.changes, answer)
        return answer

    def instances(
        self, shown: Sequence[ModelInstance], now: datetime, read: Callable[[Sequence[str]], Sequence[Shown]]
    ) -> list[Shown]:
        """What DescribeContainerInstances shows of each of `shown`, seen now where it is news to the tables."""
        kept, record_of = self._instances, self.record_of
        others = [
            one for one in shown if (was := kept.get(one.instance_id)) is None or was[1].ecs_version != one.version
        ]
        unread = [one for one in others if not self._changed(one, now)]
        for one, fact in zip(unread, read([one.arn for one in unread]), strict=True):
            kept[one.instance_id] = fact
        seen = [kept[one.instance_id] for one in shown]
        return [
            one if (record := record_of(one[0])) is not None and not is_newer(one[1], record) else _seen_at(now, one)
            for one in seen
        ]

    def _changed(self, instance: ModelInstance, now: datetime) -> bool:
        """Whether all that a look would show of the instance is known: its machine and its registration stay."""
        name, known = self._instances.get(instance.instance_id, ("", None))
        if known is None or known.container_instance_id != instance.arn.rsplit("/", 1)[-1]:
            return False
        changes = {
            "at": now,
            "ecs_version": instance.version,
            "ecs_status": str(instance.status),
            "agent_connected": instance.agent_connected,
            "gpus_free": len(self.cluster.free_gpus(instance)),
        }
        self._instances[name] = (name, replace_fields(known, changes))
        return True


def _seen_at(now: datetime, one: Shown) -> Shown:
    return one if one[1].at == now else (one[0], replace_fields(one[1], {"at": now}))


class Ec2DescribeCache:
    """What EC2 shows of machines. `read` is the production's own reading."""

    def __init__(self, fleet: VirtualFleet) -> None:
        self.fleet, self.cluster = fleet, fleet.cluster
        self._last: tuple[Sequence[str], tuple[Any, ...], Mapping[str, Ec2Instance]] | None = None
        self._at = -1
        """The count of changes at which the last answer was as good as new."""

    def _shown(self, instance_ids: Sequence[str]) -> tuple[Any, ...]:
        """All of the machines that an answer is made of and that can change."""
        every = map(self.cluster.instances.__getitem__, instance_ids)
        return tuple([(one.ec2_state, one.lifecycle, one.root_device, *one.tags.items()) for one in every])

    def machines(
        self, instance_ids: Sequence[str], read: Callable[[Sequence[str]], Mapping[str, Ec2Instance]]
    ) -> Mapping[str, Ec2Instance]:
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
        self,
        instance_ids: Sequence[str],
        at_once: int,
        read: Callable[[Sequence[str]], Mapping[str, Ec2InstanceStatus]],
    ) -> Mapping[str, Ec2InstanceStatus]:
        """What DescribeInstanceStatus shows, asked of `at_once` machines at a time: in each answer they come in the
        order in which they were launched."""
        machines = {one.instance_id: one for one in self.cluster.known_to_ec2(self.fleet.timeline.now)}
        if not machines.keys() >= set(instance_ids):
            return read(instance_ids)  # EC2 refuses such a question whole, and then it is put in parts
        others = read([one for one in instance_ids if not _is_plain(machines[one])])
        plain = next((one for one in instance_ids if _is_plain(machines[one])), None)
        same = read([plain])[plain] if plain is not None else None
        order = {one: number for number, one in enumerate(machines)}
        found: dict[str, Ec2InstanceStatus] = {}
        for start in range(0, len(instance_ids), at_once):
            for one in sorted(instance_ids[start : start + at_once], key=order.__getitem__):
                status = others.get(one, same)
                assert status is not None
                found[one] = status
        return found


def _is_plain(machine: ModelInstance) -> bool:
    return machine.ec2_state is Ec2State.RUNNING and not machine.impaired and not machine.scheduled
