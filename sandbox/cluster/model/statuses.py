"""Enums of the cluster model: ECS and EC2 statuses, true process states, repairs, reboot reactions, status checks."""

from enum import StrEnum


class TaskStatus(StrEnum):
    """ECS status of a task (`lastStatus` and `desiredStatus`), in the order of a task's life."""

    PROVISIONING = "PROVISIONING"
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    DEPROVISIONING = "DEPROVISIONING"
    STOPPED = "STOPPED"


class ContainerInstanceStatus(StrEnum):
    """ECS status of a container instance. A reboot does not change the status."""

    ACTIVE = "ACTIVE"
    DRAINING = "DRAINING"
    INACTIVE = "INACTIVE"


class Ec2State(StrEnum):
    """EC2 state of an instance, as DescribeInstances names it."""

    PENDING = "pending"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    SHUTTING_DOWN = "shutting-down"
    TERMINATED = "terminated"


class EcsStopCode(StrEnum):
    """`stopCode` of a stopped ECS task."""

    FAILED_TO_START = "TaskFailedToStart"
    ESSENTIAL_EXITED = "EssentialContainerExited"
    USER = "UserInitiated"
    TERMINATION = "TerminationNotice"


class ProcessState(StrEnum):
    """The true state of a task's process on the instance. ECS may not know this state yet."""

    NONE = "none"
    RUNNING = "running"
    ENDED = "ended"
    FAILED_TO_START = "failed_to_start"


class CuredBy(StrEnum):
    """The least repair that cures a GPU fault: a reset of the GPU, a reboot, a new host (stop and start), or none."""

    RESET = "reset"
    REBOOT = "reboot"
    REPLACE = "replace"
    NEVER = "never"


class RebootBehaviour(StrEnum):
    """How an instance reacts to a reboot request."""

    NORMAL = "normal"
    SILENT = "silent"  # the instance boots, but its agent never reconnects
    IGNORED = "ignored"  # EC2 accepts the request, but the instance does not reboot


class StatusCheck(StrEnum):
    """EC2's status checks of an instance: SYSTEM checks its host, INSTANCE its own network and kernel."""

    SYSTEM = "system"
    INSTANCE = "instance"
