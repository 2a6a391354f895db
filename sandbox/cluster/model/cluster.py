"""The cluster model: what ECS and EC2 know about our instances and tasks, and what is really so on them.

Pure state. Nothing here (nor in the other `model_*` modules) reads a clock, opens a socket, starts a process or
draws a random number: time is the argument `now` (aware UTC datetime), ids come from a seeded counter. The sandbox
drives it with real processes, the simulator with a virtual clock.

Two layers live side by side. A task's `process` is the truth on the machine; `last_status` is what ECS has been told.
Only a connected agent carries one to the other, so a rebooted or unreachable instance keeps saying RUNNING.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import takewhile
from typing import Any

from sandbox.cluster.model.task_index import TaskIndex

STOPPED_TASKS_MAX = timedelta(hours=1)  # ECS describes a stopped task for at least an hour
TERMINATED_INSTANCES_MAX = timedelta(hours=1)  # EC2 shows a terminated instance for about an hour
CLIENT_TOKENS_MAX = timedelta(hours=24)
FORGET_EACH = timedelta(hours=1)


class TaskStatus(StrEnum):
    PROVISIONING = "PROVISIONING"
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    DEPROVISIONING = "DEPROVISIONING"
    STOPPED = "STOPPED"


class ContainerInstanceStatus(StrEnum):
    """ECS status of a container instance; a reboot does not change it."""

    ACTIVE = "ACTIVE"
    DRAINING = "DRAINING"
    INACTIVE = "INACTIVE"


class Ec2State(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    SHUTTING_DOWN = "shutting-down"
    TERMINATED = "terminated"


class EcsStopCode(StrEnum):
    FAILED_TO_START = "TaskFailedToStart"
    ESSENTIAL_EXITED = "EssentialContainerExited"
    USER = "UserInitiated"
    TERMINATION = "TerminationNotice"


class ProcessState(StrEnum):
    """What is really so on the machine, whether or not ECS knows it."""

    NONE = "none"
    RUNNING = "running"
    ENDED = "ended"
    FAILED_TO_START = "failed_to_start"


class CuredBy(StrEnum):
    REBOOT = "reboot"
    REPLACE = "replace"
    NEVER = "never"


class RebootBehaviour(StrEnum):
    NORMAL = "normal"
    SILENT = "silent"  # the machine boots, its agent never reconnects
    IGNORED = "ignored"  # the request is accepted and nothing happens


class StatusCheck(StrEnum):
    """EC2's checks of an instance: its host, and its own network and kernel."""

    SYSTEM = "system"
    INSTANCE = "instance"


class AwsApiError(Exception):
    """An AWS error answer: its code, its message, the HTTP status, and members beyond the message."""

    def __init__(self, code: str, message: str, status: int = 400, **members: Any) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message, self.status, self.members = code, message, status, members


@dataclass
class Container:
    name: str
    arn: str
    image: str
    runtime_id: str
    cpu: int = 0
    memory: int | None = None
    memory_reservation: int | None = None
    gpu_ids: tuple[str, ...] = ()
    exit_code: int | None = None
    reason: str | None = None
    last_status: TaskStatus = TaskStatus.PENDING


@dataclass
class Task:
    task_id: str
    arn: str
    definition: dict[str, Any]  # as DescribeTaskDefinition gives it
    instance_id: str
    group: str
    overrides: dict[str, Any]
    cpu: int  # units
    memory: int  # MiB
    containers: list[Container]
    main: str  # name of the container whose process is the task
    created_at: datetime
    updated_at: datetime
    started_by: str | None = None
    tags: list[dict[str, str]] = field(default_factory=list)
    last_status: TaskStatus = TaskStatus.PROVISIONING
    desired_status: TaskStatus = TaskStatus.RUNNING
    version: int = 1
    stop_code: EcsStopCode | None = None
    stopped_reason: str | None = None
    started_at: datetime | None = None
    stopping_at: datetime | None = None
    execution_stopped_at: datetime | None = None
    stopped_at: datetime | None = None
    process: ProcessState = ProcessState.NONE
    process_exit: int | None = None  # None with ENDED: the container vanished
    process_reason: str | None = None
    process_started_at: datetime | None = None
    process_ended_at: datetime | None = None

    @property
    def gpu_ids(self) -> tuple[str, ...]:
        return tuple(gpu for container in self.containers for gpu in container.gpu_ids)

    @property
    def is_live(self) -> bool:
        return self.last_status is not TaskStatus.STOPPED

    @property
    def runs(self) -> bool:
        return self.process is ProcessState.RUNNING


@dataclass(frozen=True)
class GpuFault:
    """A GPU that is broken until `cured_by` happens. `kind`: xid79 or ecc."""

    kind: str
    cured_by: CuredBy


@dataclass(frozen=True)
class ScheduledEvent:
    """What EC2 will do to a machine, in the words of DescribeInstanceStatus; over, it is still shown for a while."""

    event_id: str
    code: str
    not_before: datetime
    description: str


@dataclass
class ModelInstance:
    """One EC2 machine and its container instance. The ARN survives a reboot; `boot_id` does not."""

    instance_id: str
    arn: str
    gpus: tuple[str, ...]  # registered UUIDs, in index order
    cpu: int
    memory: int
    private_ip: str
    availability_zone: str
    instance_type: str
    tags: dict[str, str]
    boot_id: str
    booted_at: datetime
    launched_at: datetime
    registered_at: datetime
    updated_at: datetime
    status: ContainerInstanceStatus = ContainerInstanceStatus.ACTIVE
    ec2_state: Ec2State = Ec2State.RUNNING
    agent_connected: bool = True
    version: int = 1
    live: list[str] = field(default_factory=list)  # ids of the tasks that hold its resources
    faults: dict[str, GpuFault] = field(default_factory=dict)  # by GPU UUID
    reboot_behaviour: RebootBehaviour = RebootBehaviour.NORMAL
    lifecycle: str = ""  # spot, capacity-block; "" is on demand
    root_device: str = "ebs"
    impaired: dict[StatusCheck, datetime] = field(default_factory=dict)  # failing status checks, and since when
    scheduled: list[ScheduledEvent] = field(default_factory=list)
    terminated_at: datetime | None = None


@dataclass(frozen=True)
class OperationResult:
    """What an operation answers, and the EventBridge events it emits, in order, as complete envelopes."""

    result: dict[str, Any]
    events: list[dict[str, Any]]


@dataclass(frozen=True)
class StoredToken:
    request: dict[str, Any]  # but for the token itself
    task_ids: tuple[str, ...]
    at: datetime


class Ids:
    """Ids that look random and are not: a seed and a counter per kind."""

    def __init__(self, seed: str) -> None:
        self._seed = seed
        self._counts: dict[str, int] = {}

    def hex(self, kind: str, digits: int = 32) -> str:
        self._counts[kind] = self._counts.get(kind, 0) + 1
        text = f"{self._seed}/{kind}/{self._counts[kind]}"
        return hashlib.sha256(text.encode()).hexdigest()[:digits]

    def uuid(self, kind: str) -> str:
        """As `uuid.UUID(hex=…, version=4)` writes it."""
        text = self.hex(kind)
        variant = "89ab"[int(text[16], 16) & 3]
        return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-{variant}{text[17:20]}-{text[20:]}"


class ClusterModel:
    """The state of one ECS cluster. The operations are functions in `model_tasks` and `model_instances`."""

    def __init__(self, name: str, account: str, region: str, seed: str = "cluster") -> None:
        self.name, self.account, self.region = name, account, region
        self.partition = "aws-cn" if region.startswith("cn-") else "aws"
        self._arn_prefix = f"arn:{self.partition}:ecs:{region}:{account}"
        self.cluster_arn = self.arn("cluster", name)
        self.ids = Ids(seed)
        self.zones = "abc"
        """The availability zones that machines are launched in, one after the other."""
        self.instances: dict[str, ModelInstance] = {}  # by EC2 instance id, in order of launch
        self._tasks: TaskIndex[Task] = TaskIndex()
        self.tokens: dict[str, StoredToken] = {}  # in the order in which they were first used
        self._forgot_at: datetime | None = None
        self._registrations: dict[str, ModelInstance] = {}  # by the ARN and by its last part
        self._event_count = 0
        self.mute: Callable[[Task], bool] | None = None
        """Whether nobody listens to what would be said of a task as it is: its event is then a mere sketch."""
        self.touched: dict[str, None] = {}
        """Ids of the instances that ECS has something new to say about; whoever drives the model empties it."""

    def event_id(self) -> str:
        """The id of the next event; where nobody listens to all of them, one that costs less to make."""
        if self.mute is None:
            return self.ids.uuid("event")
        self._event_count += 1
        return f"{self._event_count:08x}-0000-4000-8000-000000000000"

    @property
    def tasks(self) -> TaskIndex[Task]:
        """By task id, in order of creation."""
        return self._tasks

    @tasks.setter
    def tasks(self, tasks: dict[str, Task]) -> None:
        self._tasks = tasks if isinstance(tasks, TaskIndex) else TaskIndex(tasks)

    def processed(self, task: Task, process: ProcessState) -> None:
        """The truth about the task's process changes."""
        task.process = process
        self._tasks.moved(task)

    def arn(self, kind: str, name: str) -> str:
        return f"{self._arn_prefix}:{kind}/{name}"

    def check_cluster(self, reference: str | None) -> None:
        if (reference or "default") not in {self.name, self.cluster_arn}:
            raise AwsApiError("ClusterNotFoundException", "Cluster not found.")

    def find_task(self, reference: str, now: datetime) -> Task | None:
        task = self.tasks.get(reference.rsplit("/", 1)[-1])
        forgotten = task is None or (task.stopped_at is not None and now - task.stopped_at > STOPPED_TASKS_MAX)
        return None if forgotten else task

    def find_container_instance(self, reference: str) -> ModelInstance | None:
        found = self._registrations.get(reference)
        if found is None or self.instances.get(found.instance_id) is not found:
            every = self.instances.values()
            self._registrations = {one.arn.rsplit("/", 1)[-1]: one for one in every} | {one.arn: one for one in every}
            found = self._registrations.get(reference) or self._registrations.get(reference.rsplit("/", 1)[-1])
        return found

    def known_to_ec2(self, now: datetime) -> list[ModelInstance]:
        """Every machine but those that EC2 has forgotten."""
        horizon = now - TERMINATED_INSTANCES_MAX
        return [i for i in self.instances.values() if i.terminated_at is None or i.terminated_at > horizon]

    def instance_of(self, task: Task) -> ModelInstance:
        return self.instances[task.instance_id]

    def live_tasks(self, instance: ModelInstance) -> Iterator[Task]:
        """Tasks that ECS does not hold for stopped; safe while they are being stopped."""
        return iter([self._tasks[task_id] for task_id in instance.live])

    def remaining(self, instance: ModelInstance) -> tuple[int, int, list[str]]:
        """What no task holds of the instance: CPU units, MiB of memory, and GPUs in index order."""
        cpu, memory, held = instance.cpu, instance.memory, set[str]()
        for task_id in instance.live:
            task = self._tasks[task_id]
            cpu, memory = cpu - task.cpu, memory - task.memory
            held.update(task.gpu_ids)
        return cpu, memory, [gpu for gpu in instance.gpus if gpu not in held]

    def free_gpus(self, instance: ModelInstance) -> list[str]:
        return self.remaining(instance)[2]

    def forget(self, now: datetime) -> None:
        """Drop the tasks and client tokens that ECS would have dropped, so that nothing grows without bound.

        Nobody can ask for such a task any more (see `find_task`), so it is enough to look for them now and then, and
        among the oldest: tasks are in order of creation.
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
