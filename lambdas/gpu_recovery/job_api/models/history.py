"""Models of the event history: events, incidents, timelines and figures."""

from __future__ import annotations

from typing import Annotated, Any

from gpu_recovery.core.event_history.incidents import IncidentOutcome
from gpu_recovery.core.event_history.recorded_event import EventKind
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.job_api.models.base import OneOf, Percent, ResponseModel, Time
from gpu_recovery.job_api.models.jobs import Bill


class EventFailure(ResponseModel):
    """The rank whose failure an event reports."""

    rank: int
    instance_id: str
    exit_code: int | None


class EventDiagnosis(ResponseModel):
    """The diagnosis that an event reports."""

    cause: str
    confidence: Percent
    decided: bool
    remedy: str
    remedy_sentence: str
    instances: list[str]
    gpus: list[str]
    sentence: str


class Message(ResponseModel):
    """A message to operators."""

    severity: str
    subject: str


class Event(ResponseModel):
    """An event of a job or an instance."""

    id: str
    at: Time
    kind: EventKind
    job_id: str | None
    instance_id: str | None
    attempt: int | None
    before: str | None
    after: str | None
    reason: str
    incident_id: str | None
    check_id: str | None
    failure: EventFailure | None
    diagnosis: EventDiagnosis | None
    message: Message | None


class Events(ResponseModel):
    """Events in the order of time, the newest last."""

    events: list[Event]
    next_cursor: str


class EventRecords(ResponseModel):
    """A page of events as they are stored, the oldest first."""

    records: list[dict[str, Any]]
    next_cursor: str | None


class Phase(ResponseModel):
    """A time in which a job or a rank had one status."""

    status: str
    attempt: int | None
    since: Time
    until: Time | None


class Incident(ResponseModel):
    """An incident: a failure, and what was done about it."""

    incident_id: str
    state: Annotated[str, OneOf("open", "closed")]
    outcome: IncidentOutcome | None
    job_id: str | None
    instance_id: str | None
    opened_at: Time
    closed_at: Time | None
    recovered_at: Time | None
    reason: str
    cause: str | None
    confidence: Percent | None
    decided: bool
    instances: list[str]
    user: str | None
    priority: str | None
    gpus: int
    gpu_h_lost: float | None
    attempts: list[int]
    phases: list[Phase]
    bill: Bill | None


class Incidents(ResponseModel):
    """A page of incidents, the latest first."""

    incidents: list[Incident]
    next_cursor: str | None


class PassedChecks(ResponseModel):
    """Health checks of an incident that found no fault."""

    instances: int
    named: list[str]


class IncidentThread(Incident):
    """An incident with its events, and those of the instances that were checked or repaired for it."""

    events: list[Event]
    passed_checks: PassedChecks
    left_out: int


class TimelineFailure(EventFailure):
    """The first failure of an attempt."""

    at: Time
    sentence: str


class Mark(ResponseModel):
    """A repair or a health check in the row of a timeline."""

    status: str
    since: Time
    until: Time | None


class RankRow(ResponseModel):
    """Ranks of an attempt with an equal course."""

    ranks: str
    number: int
    instances: list[str]
    has_first_failure: bool
    marks: list[Mark]


class AttemptTimeline(ResponseModel):
    """The phases of an attempt, and its ranks grouped by equal course."""

    attempt: int
    attempt_id: str
    phases: list[Phase]
    failure: TimelineFailure | None
    rows: list[RankRow]


class Timeline(ResponseModel):
    """The attempts of a job over time."""

    job_id: str
    status: JobStatus
    as_of: Time
    before_first_attempt: list[Phase]
    attempts: list[AttemptTimeline]
    earlier_attempts: int
    is_complete: bool


class Figures(ResponseModel):
    """Figures of a time: GPU-hours, recoveries, incidents and jobs."""

    gpu_h_held: float
    gpu_h_running: float
    gpu_h_in_line: float
    gpu_h_lost: float
    running_share: float | None
    ettr: float | None
    ettr_share: float | None
    fleet_available: float | None
    mttf_gpu_h: float | None
    recovery_s_p50: float | None
    recovery_s_p90: float | None
    recovery_s_longest: float | None
    recoveries: int
    incidents: int
    recovered: int
    given_up: int
    jobs_succeeded: int
    jobs_failed: int
    jobs_canceled: int


class SummaryRow(Figures):
    """Figures of a day, a user or a priority."""

    name: str


class Summary(ResponseModel):
    """Figures of the last days, by day, user or priority."""

    by: Annotated[str, OneOf("day", "user", "priority")]
    since: str
    as_of: Time | None
    rows: list[SummaryRow]
    total: Figures
