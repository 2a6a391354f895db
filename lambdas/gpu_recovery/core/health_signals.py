"""The words of those who watch machines from outside: ECS, EC2, AWS Health and CloudWatch."""

from __future__ import annotations

from enum import StrEnum


class Ec2InstanceState(StrEnum):
    """The states of an EC2 instance."""

    PENDING = "pending"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    SHUTTING_DOWN = "shutting-down"
    TERMINATED = "terminated"

    @property
    def is_off(self) -> bool:
        """Whether nothing runs on the machine any more."""
        return self in (Ec2InstanceState.STOPPED, Ec2InstanceState.TERMINATED)


class HealthKind(StrEnum):
    """Who says how an instance is: the health check types of ECS, EC2's two status checks, our own agent."""

    CONTAINER_RUNTIME = "CONTAINER_RUNTIME"
    ACCELERATED_COMPUTE = "ACCELERATED_COMPUTE"
    DAEMON = "DAEMON"
    AGENT_CONNECTIVITY = "AGENT_CONNECTIVITY"
    SYSTEM_STATUS = "SYSTEM_STATUS"
    INSTANCE_STATUS = "INSTANCE_STATUS"
    NODE_AGENT = "NODE_AGENT"


ON_THE_INSTANCE = (
    HealthKind.CONTAINER_RUNTIME,
    HealthKind.ACCELERATED_COMPUTE,
    HealthKind.DAEMON,
    HealthKind.AGENT_CONNECTIVITY,
    HealthKind.NODE_AGENT,
)
"""The watchers on the machine itself, who begin anew when it boots."""


class HealthStatus(StrEnum):
    """What a watcher says. INSUFFICIENT_DATA is not OK, and it is not IMPAIRED."""

    OK = "OK"
    IMPAIRED = "IMPAIRED"
    INSUFFICIENT_DATA = "INSUFFICIENT_DATA"
    INITIALIZING = "INITIALIZING"


class DepartureKind(StrEnum):
    """Why an instance will be taken away, or may be."""

    INTERRUPTION = "INTERRUPTION"  # Spot or a capacity reservation: two minutes
    RETIREMENT = "RETIREMENT"  # the host is given up: no reboot cures it
    MAINTENANCE = "MAINTENANCE"  # EC2 reboots the machine or its host
    REBALANCE = "REBALANCE"  # a Spot instance is more likely than usual to be interrupted
