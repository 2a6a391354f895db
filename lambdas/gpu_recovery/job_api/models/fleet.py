"""Models of the fleet limits and of what the web console polls."""

from __future__ import annotations

from gpu_recovery.core.fleet import Breaker
from gpu_recovery.core.instance.record import RepairLevel
from gpu_recovery.core.queue.snapshot import OutOfUse
from gpu_recovery.job_api.models.base import Column, OperatorOfQuarantine, ResponseModel, Time
from gpu_recovery.job_api.models.history import Event, Figures, Incident
from gpu_recovery.job_api.models.queue import PriorityTotal, QuotaUse
from gpu_recovery.job_api.overview_parts import OverviewPart


class CircuitBreaker(ResponseModel):
    """The circuit breaker of repairs."""

    state: Breaker
    since: Time | None
    because: str | None
    probe: str | None
    probe_at: Time | None
    incident_id: str | None
    blamed: dict[str, Time]
    opens_at: int


class Outage(ResponseModel):
    """The deployment receives no events."""

    since: Time
    because: str
    incident_id: str


class Pause(ResponseModel):
    """An operator has paused all repairs."""

    by: str
    because: str
    at: Time


class HeldRepair(ResponseModel):
    """A repair that a limit blocks."""

    instance_id: str
    since: Time
    because: str
    rung: RepairLevel | None
    evidence: str | None


class InstanceForOperator(ResponseModel):
    """An instance that needs an operator."""

    instance_id: str
    since: Time
    because: str
    quarantined_by: OperatorOfQuarantine = None


class InstanceOutOfUse(ResponseModel):
    """An instance that gets no job, and why."""

    instance_id: str
    kind: OutOfUse
    since: Time | None
    because: str


class OverviewLimits(ResponseModel):
    """The fleet limits that the overview shows."""

    gpu_instances: int
    observe_only: bool
    replace: bool
    repairing: list[str]
    repairs_at_once_max: int
    breaker: CircuitBreaker
    deaf: Outage | None
    pause: Pause | None


class Fleet(OverviewLimits):
    """The fleet limits, and the instances that get no job."""

    gpu_instances_counted: bool
    held: list[HeldRepair]
    for_a_person: list[InstanceForOperator]
    out_of_use: list[InstanceOutOfUse]
    out_of_use_more: int
    unreadable: list[str]


class FleetTotals(ResponseModel):
    """Numbers of instances and GPUs."""

    instances: int
    gpus: int
    by_status: dict[str, int]
    silent: int
    instances_in_use: int
    instances_free: int
    gpus_in_use: int
    gpus_free: int
    gpus_out_of_use: int


class FleetMap(ResponseModel):
    """The status of every instance, in columns."""

    as_of: Time | None
    members: str | None
    statuses: list[str]
    jobs: list[str]
    status: Column
    flags: Column
    job: Column
    status_at: Column
    utilisation: Column | None
    gpu_history: bool


class FleetMembers(ResponseModel):
    """The instances of the fleet map and their places, in columns."""

    as_of: Time | None
    members: str | None
    ids: list[str]
    gpus: Column
    groups: list[str]
    group: Column
    zones: list[str]
    zone: Column
    racks: list[str]
    rack: Column


class FleetLimits(ResponseModel):
    """The totals and the fleet limits of the last reconcile cycle."""

    as_of: Time | None
    totals: FleetTotals | None
    limits: Fleet | None


class Overview(ResponseModel):
    """What an operator looks at first. A part that was never written is null or empty. So is a part of `missing`."""

    as_of: Time | None
    queue_as_of: Time | None
    fleet: FleetTotals | None
    limits: OverviewLimits | None
    held: int
    for_a_person: list[InstanceForOperator]
    for_a_person_more: int
    totals: list[PriorityTotal]
    quotas: list[QuotaUse]
    incidents: list[Incident]
    events: list[Event]
    week: Figures | None
    dead_letters: dict[str, int] | None
    missing: list[OverviewPart]
