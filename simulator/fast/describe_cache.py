"""Cache of ECS and EC2 descriptions: an answer is parsed once and reused until the described state changes.

The reconciler describes the whole cluster each minute, and almost nothing changes in between. The cache relies on
these facts:

- ECS counts every change of a task or a container instance in its `version`. A parsed answer stays valid for its
  version. Only the time of observation differs, and the cache renews the time where the tables lack that version.
  ECS health checks have no version, so an instance with reports of them is described each time.
- EC2 has no version. But all running instances without impairment and scheduled events have the same status. A
  description of many running instances stays valid at least until `VirtualFleet.changes` counts a change.
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
"""Instance id, and the container instance as ECS shows it."""
TASKS_KEPT_MAX = 50_000
"""Upper bound of cached tasks. The cache is emptied when it is exceeded."""
MANY = 50
"""Smallest number of instances in a description for which the answer is saved."""


class EcsDescribeCache:
    """Facts of tasks and container instances by version.

    The argument `read` of the methods is the description by the production wrapper.

    Args:
        fleet: the fleet that ECS describes.
        record_of: returns the present record of an instance in the tables, or None.
    """

    def __init__(self, fleet: VirtualFleet, record_of: Callable[[str], Record | None]) -> None:
        self.fleet, self.cluster, self.record_of = fleet, fleet.cluster, record_of
        self._tasks: dict[str, TaskFact] = {}
        self._last: tuple[Sequence[str], int, tuple[TaskFact, ...]] | None = None
        """Latest answer without a stopped task: task ids, `VirtualFleet.changes` at that time, and facts."""
        self._instances: dict[str, Shown] = {}
        self._overrides: dict[str, Overrides] = {}

    def overrides(self, task: Fields) -> Overrides:
        """Return the overrides of a task. They never change, so they are read once."""
        arn = task.text("taskArn")
        known = self._overrides.get(arn)
        if known is None:
            if len(self._overrides) > TASKS_KEPT_MAX:
                self._overrides.clear()
            known = self._overrides[arn] = overrides_of(task)
        return known

    def instance_reported(self, shown: Shown) -> None:
        """Save the container instance that an event shows, if the event shows its present version."""
        instance = self.cluster.find_container_instance(shown[1].container_instance_id)
        if instance is not None and instance.version == shown[1].ecs_version:
            self._instances[instance.instance_id] = shown

    def task_reported(self, fact: TaskFact) -> None:
        """Save the task that an event shows, if it runs and the event shows its present version.

        The times come from the model, because a description has microseconds and an event has not.
        """
        task = self.cluster.tasks.get(fact.task_id)
        if task is not None and task.version == fact.version and task.last_status is TaskStatus.RUNNING:
            changes = {"at": task.started_at or task.created_at, "created_at": task.created_at}
            self._tasks[task.task_id] = replace_fields(fact, changes)

    def _update_task(self, task: Task) -> bool:
        """Update the cached fact of a live task from the model. Return False if the task must be described instead."""
        known, reason = self._tasks.get(task.task_id), task.stopped_reason or ""
        if known is None or not task.is_live or not reason.isascii() or len(reason) > PROSE_CHARACTERS_MAX:
            return False
        changes = {
            "last_status": str(task.last_status),
            "desired_status": str(task.desired_status),
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
        """Return what DescribeTasks shows of the tasks that ECS still knows, in the order of `task_ids`."""
        if self._last is not None and self._last[1] == self.fleet.changes and self._last[0] == task_ids:
            return self._last[2]
        if len(self._tasks) > TASKS_KEPT_MAX:
            self._tasks.clear()
        cached, find = self._tasks, self.cluster.find_task
        known = [task for task_id in task_ids if (task := find(task_id, now)) is not None]
        outdated = [
            task for task in known if (fact := cached.get(task.task_id)) is None or fact.version != task.version
        ]
        unread = [task for task in outdated if not self._update_task(task)]
        for task, fact in zip(unread, read([task.task_id for task in unread]), strict=True):
            cached[task.task_id] = fact
        answer = tuple([cached[task.task_id] for task in known])
        if len(answer) == len(task_ids) and LastStatus.STOPPED not in {fact.last_status for fact in answer}:
            self._last = (task_ids, self.fleet.changes, answer)
        return answer

    def instances(
        self, shown: Sequence[ModelInstance], now: datetime, read: Callable[[Sequence[str]], Sequence[Shown]]
    ) -> list[Shown]:
        """Return what DescribeContainerInstances shows of each of `shown`.

        The time of observation is `now` where the tables lack the version. Elsewhere an older time may stand: there the
        tables ignore the observation.
        """
        cached, record_of = self._instances, self.record_of
        outdated = [
            instance
            for instance in shown
            if (known := cached.get(instance.instance_id)) is None
            or known[1].ecs_version != instance.version
            or known[1].health
            or instance.ecs_health
        ]
        unread = [instance for instance in outdated if not self._update_instance(instance, now)]
        for instance, observed in zip(unread, read([instance.arn for instance in unread]), strict=True):
            cached[instance.instance_id] = observed
        seen = [cached[instance.instance_id] for instance in shown]
        return [
            entry
            if (record := record_of(entry[0])) is not None and not is_newer(entry[1], record)
            else _seen_at(now, entry)
            for entry in seen
        ]

    def _update_instance(self, instance: ModelInstance, now: datetime) -> bool:
        """Update the cached state of a container instance from the model.

        Return False if the container instance must be described instead, because it has another registration, or
        reports of ECS health checks, which change without a version.
        """
        instance_id, known = self._instances.get(instance.instance_id, ("", None))
        if known is None or known.health or instance.ecs_health:
            return False
        if known.container_instance_id != instance.arn.rsplit("/", 1)[-1]:
            return False
        changes = {
            "at": now,
            "ecs_version": instance.version,
            "ecs_status": str(instance.status),
            "agent_connected": instance.agent_connected,
            "gpus_free": len(self.cluster.free_gpus(instance)),
        }
        self._instances[instance_id] = (instance_id, replace_fields(known, changes))
        return True


def _seen_at(now: datetime, shown: Shown) -> Shown:
    return shown if shown[1].at == now else (shown[0], replace_fields(shown[1], {"at": now}))


class Ec2DescribeCache:
    """Descriptions of instances by EC2. The argument `read` of the methods is the description by the wrapper."""

    def __init__(self, fleet: VirtualFleet) -> None:
        self.fleet, self.cluster = fleet, fleet.cluster
        self._last: tuple[Sequence[str], tuple[Any, ...], Mapping[str, Ec2Instance]] | None = None
        """Latest saved description: instance ids, details of the instances at that time, and answer."""
        self._at = -1
        """Value of `VirtualFleet.changes` at which `_last` was valid most recently."""

    def _details(self, instance_ids: Sequence[str]) -> tuple[Any, ...]:
        """Return every changeable detail of the instances that DescribeInstances shows."""
        instances = map(self.cluster.instances.__getitem__, instance_ids)
        return tuple(
            [
                (instance.ec2_state, instance.lifecycle, instance.root_device, *instance.tags.items())
                for instance in instances
            ]
        )

    def instances(
        self, instance_ids: Sequence[str], read: Callable[[Sequence[str]], Mapping[str, Ec2Instance]]
    ) -> Mapping[str, Ec2Instance]:
        """Return what DescribeInstances shows of the instances, by id, in the order of EC2."""
        if len(instance_ids) < MANY:
            return read(instance_ids)
        is_same_request = self._last is not None and self._last[0] == instance_ids
        if is_same_request and self._last is not None and self._at == self.fleet.changes:
            return self._last[2]
        details = self._details(instance_ids)
        if not (is_same_request and self._last is not None and self._last[1] == details):
            answer = read(instance_ids)
            if not all(detail[0] is Ec2State.RUNNING for detail in details):
                return answer  # not saved: EC2 forgets terminated instances
            self._last = (instance_ids, details, answer)
        self._at = self.fleet.changes
        return self._last[2]

    def statuses(
        self,
        instance_ids: Sequence[str],
        at_once: int,
        read: Callable[[Sequence[str]], Mapping[str, Ec2InstanceStatus]],
    ) -> Mapping[str, Ec2InstanceStatus]:
        """Return what DescribeInstanceStatus shows, requested for `at_once` instances at a time.

        Each part of the answer is in launch order, as in the answers of EC2.
        """
        known = self.cluster.known_to_ec2(self.fleet.timeline.now)
        instances = {instance.instance_id: instance for instance in known}
        if not instances.keys() >= set(instance_ids):
            return read(instance_ids)  # EC2 refuses the whole request, and the wrapper repeats it in parts
        unusual = read([instance_id for instance_id in instance_ids if not _is_plain(instances[instance_id])])
        plain = next((instance_id for instance_id in instance_ids if _is_plain(instances[instance_id])), None)
        shared = read([plain])[plain] if plain is not None else None
        order = {instance_id: number for number, instance_id in enumerate(instances)}
        statuses: dict[str, Ec2InstanceStatus] = {}
        for start in range(0, len(instance_ids), at_once):
            for instance_id in sorted(instance_ids[start : start + at_once], key=order.__getitem__):
                status = unusual.get(instance_id, shared)
                assert status is not None
                statuses[instance_id] = status
        return statuses


def _is_plain(instance: ModelInstance) -> bool:
    return instance.ec2_state is Ec2State.RUNNING and not instance.impaired and not instance.scheduled
