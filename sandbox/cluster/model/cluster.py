"""The cluster model: what ECS and EC2 know about instances and tasks, and what is true on the instances.

The model is pure state. No module of this package reads a clock, opens a socket, starts a process or draws a random
number. Time is the argument `now` (aware UTC datetime), and ids come from a seeded counter. The sandbox drives the
model with real processes, the simulator with a virtual clock.

The model has two layers. A task's `process` is the truth on the instance; `last_status` is what ECS knows. Only a
connected agent copies the truth to ECS, so ECS keeps showing RUNNING for a rebooted or unreachable instance.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Any

from sandbox.cluster.model.records import ModelInstance, StoredToken, Task
from sandbox.cluster.model.statuses import ProcessState
from sandbox.cluster.model.task_index import TaskIndex

STOPPED_TASKS_MAX = timedelta(hours=1)  # ECS describes a stopped task for at least an hour
TERMINATED_INSTANCES_MAX = timedelta(hours=1)  # EC2 shows a terminated instance for about an hour
CLIENT_TOKENS_MAX = timedelta(hours=24)
FORGET_EACH = timedelta(hours=1)
"""Time between two sweeps of `ClusterModel.forget`."""


class AwsApiError(Exception):
    """An AWS error response: its code, its message, the HTTP status, and members beside the message."""

    def __init__(self, code: str, message: str, status: int = 400, **members: Any) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message, self.status, self.members = code, message, status, members


@dataclass(frozen=True)
class OperationResult:
    """The response of an operation, and the EventBridge events that it emits, in order, as complete envelopes."""

    result: dict[str, Any]
    events: list[dict[str, Any]]


class Ids:
    """Generator of ids that look random but are reproducible: hashes of a seed, a kind and a counter per kind."""

    def __init__(self, seed: str) -> None:
        self._seed = seed
        self._counts: dict[str, int] = {}
        self.given: dict[str, list[str]] = {}
        """The next ids by kind, where ids of another record are used again. Then ids are generated."""

    def hex(self, kind: str, digits: int = 32) -> str:
        """Return the next id of `kind` with `digits` hexadecimal digits."""
        if self.given.get(kind):
            return self.given[kind].pop(0)
        self._counts[kind] = self._counts.get(kind, 0) + 1
        text = f"{self._seed}/{kind}/{self._counts[kind]}"
        return hashlib.sha256(text.encode()).hexdigest()[:digits]

    def uuid(self, kind: str) -> str:
        """Return the next id of `kind` in the form of `uuid.UUID(hex=…, version=4)`."""
        text = self.hex(kind)
        variant = "89ab"[int(text[16], 16) & 3]
        return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-{variant}{text[17:20]}-{text[20:]}"


class ClusterModel:
    """The state of one ECS cluster.

    The operations are functions in `tasks`, `instances` and `health`. Each returns an OperationResult with the response
    and the events, or raises an AwsApiError.
    """

    def __init__(self, name: str, account: str, region: str, seed: str = "cluster") -> None:
        self.name, self.account, self.region = name, account, region
        self.partition = "aws-cn" if region.startswith("cn-") else "aws"
        self._arn_prefix = f"arn:{self.partition}:ecs:{region}:{account}"
        self.cluster_arn = self.arn("cluster", name)
        self.ids = Ids(seed)
        self.network = "127.0.0.0"
        """Network of 256 private addresses, of the first 200 instances. Each further 200 have the network after it."""
        self.zones = "abc"
        """Suffixes of the availability zones. New instances take the zones in turn."""
        self.instances: dict[str, ModelInstance] = {}  # by EC2 instance id, in order of launch
        self._tasks: TaskIndex[Task] = TaskIndex()
        self.denied_families: dict[
            str, str
        ] = {}  # the message with which IAM denies RunTask, by task definition family
        self.tokens: dict[str, StoredToken] = {}  # in the order in which they were first used
        self._forgot_at: datetime | None = None
        self._registrations: dict[str, ModelInstance] = {}  # by the ARN and by its last part
        self._event_count = 0
        self.mute: Callable[[Task], bool] | None = None
        """Whether an event about a task in its present state has no reader. Such an event is only a sketch."""
        self.touched: dict[str, None] = {}
        """Ids of the instances with a new ECS event. The driver of the model empties the dict."""

    def event_id(self) -> str:
        """Return the id of the next event. If `mute` is set, the id is a mere counter, which is cheaper."""
        if self.mute is None:
            return self.ids.uuid("event")
        self._event_count += 1
        return f"{self._event_count:08x}-0000-4000-8000-000000000000"

    @property
    def tasks(self) -> TaskIndex[Task]:
        """The tasks by id, in order of creation."""
        return self._tasks

    @tasks.setter
    def tasks(self, tasks: dict[str, Task]) -> None:
        self._tasks = tasks if isinstance(tasks, TaskIndex) else TaskIndex(tasks)

    def processed(self, task: Task, process: ProcessState) -> None:
        """Record the new true state of the task's process, and update the task index."""
        task.process = process
        self._tasks.moved(task)

    def arn(self, kind: str, name: str) -> str:
        """Return the ECS ARN of the resource `name` of `kind`."""
        return f"{self._arn_prefix}:{kind}/{name}"

    def check_cluster(self, reference: str | None) -> None:
        """Raise AwsApiError unless `reference` is the name or ARN of this cluster. None means "default"."""
        if (reference or "default") not in {self.name, self.cluster_arn}:
            raise AwsApiError("ClusterNotFoundException", "Cluster not found.")

    def find_task(self, reference: str, now: datetime) -> Task | None:
        """Return the task with this id or ARN; None if ECS does not know the task or has forgotten it."""
        task = self.tasks.get(reference.rsplit("/", 1)[-1])
        forgotten = task is None or (task.stopped_at is not None and now - task.stopped_at > STOPPED_TASKS_MAX)
        return None if forgotten else task

    def find_container_instance(self, reference: str) -> ModelInstance | None:
        """Return the instance with this container instance id or ARN; None if ECS does not know the instance."""
        instance = self._registrations.get(reference)
        is_current = instance is not None and reference.rsplit("/", 1)[-1] == instance.arn.rsplit("/", 1)[-1]
        if instance is None or not is_current or self.instances.get(instance.instance_id) is not instance:
            every = self.instances.values()
            self._registrations = {i.arn.rsplit("/", 1)[-1]: i for i in every} | {i.arn: i for i in every}
            instance = self._registrations.get(reference) or self._registrations.get(reference.rsplit("/", 1)[-1])
        return instance

    def known_to_ec2(self, now: datetime) -> list[ModelInstance]:
        """Return every instance except the terminated instances that EC2 no longer shows."""
        horizon = now - TERMINATED_INSTANCES_MAX
        return [i for i in self.instances.values() if i.terminated_at is None or i.terminated_at > horizon]

    def instance_of(self, task: Task) -> ModelInstance:
        """Return the instance that the task is placed on."""
        return self.instances[task.instance_id]

    def live_tasks(self, instance: ModelInstance) -> Iterator[Task]:
        """Iterate over the tasks that are not STOPPED in ECS. The loop may stop the tasks."""
        return iter([self._tasks[task_id] for task_id in instance.live])

    def remaining(self, instance: ModelInstance) -> tuple[int, int, list[str]]:
        """Return the free resources of the instance: CPU units, MiB of memory, and GPUs in index order."""
        cpu, memory, held = instance.cpu, instance.memory, set[str]()
        for task_id in instance.live:
            task = self._tasks[task_id]
            cpu, memory = cpu - task.cpu, memory - task.memory
            held.update(task.gpu_ids)
        return cpu, memory, [gpu for gpu in instance.gpus if gpu not in held]

    def free_gpus(self, instance: ModelInstance) -> list[str]:
        """Return the UUIDs of the instance's GPUs that no task holds, in index order."""
        return self.remaining(instance)[2]

    def forget(self, now: datetime) -> None:
        """Drop the tasks and client tokens that ECS would have dropped, so that the model does not grow for ever.

        `find_task` already hides such tasks, so one sweep each `FORGET_EACH` is enough. Tasks are in order of
        creation, so a sweep reads only the oldest.
        """
        horizon = now - CLIENT_TOKENS_MAX
        while self.tokens:
            key = next(iter(self.tokens))
            if self.tokens[key].at > horizon:
                break
            del self.tokens[key]
        if self._forgot_at is not None and self._forgot_at <= now < self._forgot_at + FORGET_EACH:
            return
        self._forgot_at = now
        old = [
            task.task_id
            for task in takewhile(lambda task: task.created_at < horizon, self.tasks.values())
            if task.stopped_at is not None and task.stopped_at < horizon and task.process is not ProcessState.RUNNING
        ]
        for task_id in old:
            del self.tasks[task_id]
