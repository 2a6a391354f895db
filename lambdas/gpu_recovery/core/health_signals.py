"""Enums of the health sources of an instance: ECS, EC2, AWS Health, CloudWatch and the node agent."""

from __future__ import annotations

from enum import StrEnum


class Ec2InstanceState(StrEnum):
    """States of an EC2 instance, as EC2 spells them."""

    PENDING = "pending"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    SHUTTING_DOWN = "shutting-down"
    TERMINATED = "terminated"

    @property
    def is_off(self) -> bool:
        """Whether the instance is off, so that no process runs on it."""
        return self in (Ec2InstanceState.STOPPED, Ec2InstanceState.TERMINATED)


class HealthKind(StrEnum):
    """Health source of a report: the health check types of ECS, the two status checks of EC2, the node agent."""

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
"""The health sources that run on the instance itself and start again when it boots."""


class HealthStatus(StrEnum):
    """Status that a health source reports. INSUFFICIENT_DATA is neither OK nor IMPAIRED."""

    OK = "OK"
    IMPAIRED = "IMPAIRED"
    INSUFFICIENT_DATA = "INSUFFICIENT_DATA"
    INITIALIZING = "INITIALIZING"


CAPACITY_BLOCK_WARNINGS = ("Capacity Block Reservation Expiration Warning", "Capacity Block Expiration Warning")
"""Detail types of EC2's warning about the end of a Capacity Block. The pages of AWS show both."""


class DepartureKind(StrEnum):
    """Kind of an announced interruption of an instance."""

    INTERRUPTION = "INTERRUPTION"  # Spot or a capacity reservation: two minutes' notice
    RETIREMENT = "RETIREMENT"  # EC2 retires the host: a reboot does not help
    MAINTENANCE = "MAINTENANCE"  # EC2 reboots the instance or its host
    REBALANCE = "REBALANCE"  # a Spot instance is more likely than usual to be interrupted
