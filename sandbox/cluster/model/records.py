"""Records of the cluster model: tasks with containers, instances with faults and scheduled events, client tokens.

A record holds both layers of the model: what ECS and EC2 show, and the truth about processes and GPUs.
"""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sandbox.cluster.model.statuses import (
    ContainerInstanceStatus,
    CuredBy,
    Ec2State,
    EcsStopCode,
    ProcessState,
    RebootBehaviour,
    StatusCheck,
    TaskStatus,
)


@dataclass
class Container:
    """One container of a task, and the resources that it holds."""

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
    """One ECS task: its request, what ECS knows (`last_status`), and the truth about its process (`process`)."""

    task_id: str
    arn: str
    definition: dict[str, Any]  # as DescribeTaskDefinition returns it
    instance_id: str
    container_instance_arn: str  # the registration under which it was started
    group: str
    overrides: dict[str, Any]
    cpu: int  # units
    memory: int  # MiB
    containers: list[Container]
    main: str  # name of the main container, which runs the task's process
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
        """UUIDs of the GPUs that the task's containers hold."""
        return tuple(gpu for container in self.containers for gpu in container.gpu_ids)

    @property
    def is_live(self) -> bool:
        """Whether ECS shows the task in any status but STOPPED."""
        return self.last_status is not TaskStatus.STOPPED

    @property
    def runs(self) -> bool:
        """Whether the task's process really runs."""
        return self.process is ProcessState.RUNNING


@dataclass(frozen=True)
class GpuFault:
    """A fault of one GPU, which lasts until the repair `cured_by` happens. `kind`: xid79, xid119 or ecc."""

    kind: str
    cured_by: CuredBy


@dataclass(frozen=True)
class ScheduledEvent:
    """A scheduled event of an instance, as DescribeInstanceStatus shows it. EC2 shows a past event for a while."""

    event_id: str
    code: str
    not_before: datetime
    description: str


@dataclass(frozen=True)
class EcsHealthCheck:
    """An ECS health check of a container instance: its status, since when, and why."""

    status: str
    since: datetime
    reason: str | None


@dataclass
class ModelInstance:
    """One EC2 instance and its container instance. The ARN survives a reboot; `boot_id` does not."""

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
    ecs_health: dict[str, EcsHealthCheck] = field(default_factory=dict)  # reported ECS health checks, by their type
    terminated_at: datetime | None = None


@dataclass(frozen=True)
class StoredToken:
    """A client token in use: its RunTask request and the tasks that the request created."""

    request: dict[str, Any]  # without the token itself
    task_ids: tuple[str, ...]
    at: datetime
