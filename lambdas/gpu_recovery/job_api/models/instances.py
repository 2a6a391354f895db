"""Models of instances, their health checks, gauges and tokens."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.health_signals import DepartureKind, HealthStatus
from gpu_recovery.core.heartbeat import GpuHealth
from gpu_recovery.core.instance.record import InstanceStatus, RepairLevel
from gpu_recovery.core.liveness import Liveness
from gpu_recovery.core.queue.snapshot import OutOfUse
from gpu_recovery.job_api.check_state import CheckState
from gpu_recovery.job_api.models.base import OperatorOfQuarantine, ResponseModel, Time
from gpu_recovery.job_api.models.jobs import Decision


class HealthReport(ResponseModel):
    """What a source reports about an instance."""

    status: HealthStatus
    since: Time
    sentence: str


class Departure(ResponseModel):
    """AWS will take the instance away."""

    kind: DepartureKind
    leaves_at: Time
    source: str
    sentence: str


class RepairNeed(ResponseModel):
    """The instance needs a repair."""

    rung: RepairLevel
    evidence: str
    seen_at: Time
    job_id: str | None


class RepairHeld(ResponseModel):
    """A limit blocks the repair of the instance."""

    since: Time
    because: str


class NodeAgent(ResponseModel):
    """The node agent of an instance."""

    seen_at: Time
    liveness: Liveness


class UnreliabilityScore(ResponseModel):
    """The unreliability score of an instance, and the signals that it is made of."""

    score: int
    made_of: str | None
    signals: dict[str, int]


class IdleCheck(ResponseModel):
    """The last idle check of an instance, and the last that it passed.

    `outcome` is null after a check that was stopped for a job or not started. `counts`: whether the
    pass is evidence for the instance now. It is less than a day old, and no fault, repair or failed job has followed.
    """

    ended_at: Time
    outcome: CheckOutcome | None
    passed_at: Time | None
    level: int | None
    counts: bool


class OutOfUseReason(ResponseModel):
    """A reason why an instance gets no job."""

    kind: OutOfUse
    since: Time | None
    because: str


class RankHeartbeat(ResponseModel):
    """A rank in a heartbeat."""

    job_id: str
    attempt: int
    rank: int
    seen_at: Time


class Inventory(ResponseModel):
    """The GPUs of an instance as its agent reported them."""

    at: Time
    agent: Annotated[str, Field(default_factory=str)]
    driver: Annotated[str | None, Field(default_factory=str)]
    gpus: list[dict[str, Any]]


class Heartbeat(ResponseModel):
    """The latest heartbeat of an instance."""

    seen_at: Time
    liveness: Liveness
    boot_id: str | None
    booted_at: Time | None
    health: GpuHealth | None
    sentence: str | None
    ranks: list[RankHeartbeat]
    inventory: Inventory | None


class _Instance(ResponseModel):
    """What a list and a single instance share."""

    instance_id: str
    status: InstanceStatus
    reason: str
    agent_connected: bool
    ecs_status: str
    container_instance_id: str
    gpus: int
    claims: dict[str, int]
    reserved_for: str | None
    boot_id: str | None
    booted_at: Time | None
    epoch: int
    status_at: Time
    deadline_at: Time | None
    incident_id: str | None
    drained: bool
    availability_zone: str
    group: str
    rack: str
    silent_since: Time | None
    suspicion: str | None
    health: dict[str, HealthReport]
    departure: Departure | None
    need: RepairNeed | None
    held: RepairHeld | None
    quarantined_by: OperatorOfQuarantine
    lemon: UnreliabilityScore
    idle_check: IdleCheck | None
    out_of_use: list[OutOfUseReason]


class InstanceSummary(_Instance):
    """An instance in a list. `node_agent` is there unless the query parameter `node_agent` is 0."""

    node_agent: Annotated[NodeAgent | None, Field(default_factory=lambda: None)]


class Instances(ResponseModel):
    """A page of instances."""

    instances: list[InstanceSummary]
    next_cursor: str | None
    unreadable: list[str]


class Instance(_Instance):
    """An instance with its history. `node_agent` and `heartbeat` are there when one instance is read."""

    history: list[Decision]
    node_agent: Annotated[NodeAgent | None, Field(default_factory=lambda: None)]
    heartbeat: Annotated[Heartbeat | None, Field(default_factory=lambda: None)]


class CheckSummary(ResponseModel):
    """A health check of an instance in the list."""

    check_id: str
    number: int
    state: CheckState
    job_id: str | None
    refused: str | None
    outcome: str | None
    summary: str | None
    level: int | None
    started_at: str | None
    ended_at: str | None


class Checks(ResponseModel):
    """A page of the health checks of an instance."""

    instance_id: str
    total: int
    checks: list[CheckSummary]
    next_cursor: str | None


class Check(ResponseModel):
    """The verdict document of a health check."""

    check_id: str
    document: dict[str, Any]


class Range(ResponseModel):
    """Lowest and highest value of a gauge by time; null where no value is known."""

    min: list[int | None]
    max: list[int | None]


class GpuGauges(ResponseModel):
    """The gauges of a GPU: percent, degrees Celsius twice, watts, MiB."""

    gpu: int
    utilisation: Range
    temperature: Range
    memory_temperature: Range
    power_w: Range
    memory_used_mib: Range


class Gauges(ResponseModel):
    """The gauges of the GPUs of an instance over time."""

    instance_id: str
    since: Annotated[Time, Field(alias="from")]
    to: Time
    at: list[Time]
    gpus: list[GpuGauges]
