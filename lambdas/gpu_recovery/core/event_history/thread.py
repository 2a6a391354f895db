"""Thread of an incident: every event of the incident, and of the instances that were checked or repaired for it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from gpu_recovery.core.event_history.incidents import Incident
from gpu_recovery.core.event_history.recorded_event import EventKind, RecordedEvent
from gpu_recovery.core.event_history.streams import position_of
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.lazy_dataclass import frozen_dataclass

EVENTS_MAX = 400
"""Events that a thread shows at most. A gang of thousands has more: one check for each instance."""
NAMED_MAX = 8
"""Instances that a thread names at most for a kind that it only counts."""
AFTER = timedelta(hours=2)
"""Time after the end of an incident in which the check of an instance that it does not name still belongs to it."""


@frozen_dataclass()
class Thread:
    """The thread of an incident.

    events:       events in the order of time.
    passed:       number of instances that were checked, passed, and have no other event in the incident.
    passed_named: some of these instances.
    left_out:     number of further events that are left out.
    """

    events: tuple[RecordedEvent, ...]
    passed: int
    passed_named: tuple[str, ...]
    left_out: int


def thread_of(incident: Incident, known: Iterable[RecordedEvent], repairs: Iterable[RecordedEvent] = ()) -> Thread:
    """Return the thread of an incident.

    Args:
        incident: the incident.
        known: events of its own, and those of its job from its start to AFTER its end.
        repairs: events of the repairs of the instances that it names.
    """
    events = {event.event_id: event for event in known if _belongs(incident, event)}
    events |= {event.event_id: event for event in repairs}
    ordered = sorted(events.values(), key=position_of)
    by_instance: dict[str, list[RecordedEvent]] = {}
    for event in ordered:
        if event.is_about_instance and event.instance_id != incident.instance_id:
            by_instance.setdefault(event.instance_id, []).append(event)
    passed = sorted(name for name, course in by_instance.items() if _has_passed(course))
    quiet = set(passed) - set(incident.instances)
    shown = [event for event in ordered if event.instance_id not in quiet]
    return Thread(
        events=tuple(shown[:EVENTS_MAX]),
        passed=len(passed),
        passed_named=tuple(passed[:NAMED_MAX]),
        left_out=max(0, len(shown) - EVENTS_MAX),
    )


def _belongs(incident: Incident, event: RecordedEvent) -> bool:
    """Return whether the event is about the incident: it names it, or it is about an instance of a failed attempt."""
    if event.incident_id == incident.incident_id:
        return True
    return (
        bool(incident.job_id)
        and event.is_about_instance
        and event.job_id == incident.job_id
        and event.attempt in incident.attempts
    )


def _has_passed(course: list[RecordedEvent]) -> bool:
    """Return whether an instance was only checked, and works again."""
    statuses = [event.after for event in course if event.kind is EventKind.INSTANCE]
    only = {InstanceStatus.CHECKING.value, InstanceStatus.AVAILABLE.value}
    is_moved = len(statuses) == len(course) and set(statuses) == only
    return is_moved and statuses[-1] == InstanceStatus.AVAILABLE
