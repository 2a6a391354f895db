"""Incidents: what the events of an incident say about it together. `incident_of` is a function of a set of events.

An incident of a job begins with the order to stop its gang and ends when the training has gone on, or when the job has
ended. An incident of an instance begins with the message about it and ends when the instance works again or is gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum

from gpu_recovery.core.event_history.recorded_event import Bill, EventKind, RecordedEvent, event_of
from gpu_recovery.core.event_history.streams import (
    INCIDENTS,
    INCIDENTS_KEPT,
    OPEN_INCIDENTS,
    HistoryItem,
)
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.job.record import RUNS, TERMINAL, JobStatus
from gpu_recovery.core.lazy_dataclass import frozen_dataclass
from gpu_recovery.core.published_events import utc_text

INSTANCES_MAX = 8
"""Instances that an incident names at most."""
INCIDENT_ID = "incident_id"
"""Attribute of an item of OPEN_INCIDENTS, which has the position of the incident in INCIDENTS."""


class IncidentOutcome(StrEnum):
    """How an incident ended."""

    RECOVERED = "recovered"
    FAILED = "failed"
    CANCELED = "canceled"
    IN_SERVICE = "in_service"
    GONE = "gone"


_OUTCOMES = {
    JobStatus.SUCCEEDED: IncidentOutcome.RECOVERED,
    JobStatus.FAILED: IncidentOutcome.FAILED,
    JobStatus.CANCELED: IncidentOutcome.CANCELED,
}
_INSTANCE_OUTCOMES = {
    InstanceStatus.AVAILABLE: IncidentOutcome.IN_SERVICE,
    InstanceStatus.GONE: IncidentOutcome.GONE,
}


@frozen_dataclass()
class Phase:
    """A status within an incident. `until` is None while it lasts."""

    status: str
    attempt: int
    since: datetime
    until: datetime | None


@frozen_dataclass()
class Incident:
    """An incident.

    reason:      sentence of its first event.
    outcome:     how it ended; None while it is open.
    cause:       cause by the last decided diagnosis, else by the last diagnosis; "" without a diagnosis.
    confidence:  confidence in the cause, in percent; None without a diagnosis.
    instances:   instances that the diagnosis or the failure names, at most INSTANCES_MAX.
    gpus:        GPUs of the job; of the instance, if the incident is about no job.
    recovered_at: time at which every rank last ran again; None if that has not happened.
    bill:        what the last downtime of the incident has cost; None while it lasts, and for an instance.
    """

    incident_id: str
    job_id: str
    instance_id: str
    opened_at: datetime
    closed_at: datetime | None
    outcome: IncidentOutcome | None
    reason: str
    cause: str
    confidence: int | None
    decided: bool
    instances: tuple[str, ...]
    user: str
    priority: str
    gpus: int
    attempts: tuple[int, ...]
    phases: tuple[Phase, ...]
    recovered_at: datetime | None
    bill: Bill | None = None

    @property
    def is_open(self) -> bool:
        """Whether the incident is open."""
        return self.closed_at is None

    def gpu_hours_lost(self, now: datetime) -> float | None:
        """Return GPUs times hours in which the job of the incident did not run; None if it is about no job."""
        if not self.job_id:
            return None
        lost = timedelta()
        for phase in self.phases:
            if phase.status not in _RUN and phase.status not in _ENDED:
                lost += max((phase.until or self.closed_at or now) - phase.since, timedelta())
        return self.gpus * lost.total_seconds() / 3_600


_RUN, _ENDED = frozenset(status.value for status in RUNS), frozenset(status.value for status in TERMINAL)


def incident_items(event: RecordedEvent, text: str) -> tuple[HistoryItem, ...]:
    """Return the item of the event's incident with the event added, as an attribute of its own.

    Args:
        event: the event.
        text: its stored text.

    Returns:
        Empty if the event belongs to no incident, or the start of the incident is not known.
    """
    if not event.incident_id or event.opened_at is None:
        return ()
    name = f"{event.version:010d}#{event.kind}"
    position = incident_position(event.opened_at, event.incident_id)
    return (HistoryItem(INCIDENTS, position, {name: text}, event.opened_at + INCIDENTS_KEPT),)


def incident_position(opened_at: datetime, incident_id: str) -> str:
    """Return the position of an incident in the stream of all incidents."""
    return f"{utc_text(opened_at)}#{incident_id}"


def open_item(item: HistoryItem, incident_id: str) -> HistoryItem:
    """Return the item that leads from the stream of open incidents to the item of an incident."""
    return HistoryItem(OPEN_INCIDENTS, item.position, {INCIDENT_ID: incident_id}, item.expires_at)


def events_in(attributes: Mapping[str, str]) -> tuple[RecordedEvent, ...]:
    """Return the events in the attributes of an incident's item. An event that gave way has no text."""
    return tuple(event_of(text) for _, text in sorted(attributes.items()) if text)


def giving_way(attributes: Mapping[str, str], version: int) -> tuple[str, ...]:
    """Return the names of the events that give way to an event if the item of an incident is full, the first one first.

    The events of the first decision and those that are newer than the event stay. Of the others, changes of status
    without a diagnosis give way first.

    Args:
        attributes: attributes of the item.
        version: version of the event.
    """
    events = {name: event_of(text) for name, text in sorted(attributes.items()) if text}
    first = min((event.version for event in events.values()), default=0)
    names = [name for name, event in events.items() if first < event.version < version]
    return tuple(sorted(names, key=lambda name: not _is_plain_move(events[name])))


def _is_plain_move(event: RecordedEvent) -> bool:
    return event.kind in (EventKind.JOB, EventKind.INSTANCE) and event.finding is None


def incident_of(known: Iterable[RecordedEvent]) -> Incident | None:
    """Return what the events of one incident say together; None without an event of it."""
    events = sorted({event.event_id: event for event in known}.values(), key=_order)
    opened_at = min((event.opened_at for event in events if event.opened_at is not None), default=None)
    if not events or opened_at is None:
        return None
    end = _end(events)
    last = events[-1]
    found = [event.finding for event in events if event.finding is not None]
    decided = [finding for finding in found if finding.decided]
    finding = decided[-1] if decided else found[-1] if found else None
    failed_on = [event.failure.instance_id for event in events if event.failure is not None]
    named = [] if finding is None else list(finding.instances)
    of_instance = [event.instance_id for event in events if event.instance_id]
    names = dict.fromkeys(name for name in (*named, *failed_on, *of_instance) if name)
    runs = [event.at for event in events if event.kind is EventKind.JOB and event.after == JobStatus.RUNNING]
    stops = (EventKind.JOB, EventKind.RECOVERY_STARTED, EventKind.RECOVERY_FAILED)
    failing = {event.attempt for event in events if event.kind in stops and event.after not in _AGAIN}
    return Incident(
        incident_id=last.incident_id,
        job_id="" if last.is_about_instance else last.job_id,
        instance_id=last.instance_id,
        opened_at=opened_at,
        closed_at=None if end is None else end[0],
        outcome=None if end is None else end[1],
        reason=_reason(events),
        cause="" if finding is None else finding.cause,
        confidence=None if finding is None else finding.confidence,
        decided=bool(decided),
        instances=tuple(names)[:INSTANCES_MAX],
        user=last.user,
        priority=last.priority,
        gpus=max(event.gpus for event in events),
        attempts=tuple(sorted(failing - {0})),
        phases=phases_of(events, opened_at, None if end is None else end[0]),
        recovered_at=max(runs, default=None),
        bill=next((event.bill for event in reversed(events) if event.bill is not None), None),
    )


_AGAIN = frozenset(
    status.value for status in (JobStatus.SUBMITTING, JobStatus.SUBMITTED, JobStatus.RUNNING, JobStatus.SUCCEEDED)
)
"""Statuses of an attempt that has not failed."""


def _order(event: RecordedEvent) -> tuple[int, str]:
    return event.version, event.kind.value


def _reason(events: list[RecordedEvent]) -> str:
    """Return the sentence with which the incident began: that of its first decision."""
    first = [event for event in events if event.version == events[0].version]
    started = [event.reason for event in first if event.kind is EventKind.RECOVERY_STARTED]
    return (started or [first[0].reason])[0]


def _end(events: list[RecordedEvent]) -> tuple[datetime, IncidentOutcome] | None:
    """Return when and how the incident ended, by its last event that says so; None while it is open."""
    for event in reversed(events):
        if event.kind is EventKind.RECOVERY_SUCCEEDED:
            return event.at, IncidentOutcome.RECOVERED
        if event.kind is EventKind.RECOVERY_FAILED:
            return event.at, IncidentOutcome.FAILED
        if event.kind is EventKind.JOB and event.after in _OUTCOMES:
            return event.at, _OUTCOMES[JobStatus(event.after)]
        if event.kind is EventKind.INSTANCE:
            return (
                (event.at, _INSTANCE_OUTCOMES[InstanceStatus(event.after)])
                if event.after in _INSTANCE_OUTCOMES
                else None
            )
    return None


def phases_of(events: Iterable[RecordedEvent], since: datetime, until: datetime | None) -> tuple[Phase, ...]:
    """Return the statuses that one record had from `since` to `until`, with their times.

    Args:
        events: events of the record. Only changes of status count.
        since: start of the first phase.
        until: end of the last phase; None while it lasts.
    """
    kinds = (EventKind.JOB, EventKind.INSTANCE)
    moves = sorted((event for event in events if event.kind in kinds), key=_order)
    phases: list[Phase] = []
    for event in moves:
        if phases:
            phases[-1] = Phase(phases[-1].status, phases[-1].attempt, phases[-1].since, max(event.at, phases[-1].since))
        elif event.at > since and event.before:
            phases.append(Phase(event.before, event.attempt, since, event.at))
        phases.append(Phase(event.after, event.attempt, max(event.at, since), None))
    if phases and until is not None:
        last = phases[-1]
        phases[-1] = Phase(last.status, last.attempt, last.since, max(until, last.since))
    return tuple(phases)
