"""Repairs of an instance: from the moment at which it leaves work until it works again, as its events tell.

The repair of an instance after a failure of a job is often asked for by its node agent and not by the job. So it is
attributed to an incident, or to an attempt, by the instance and the time.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from gpu_recovery.core.event_history.recorded_event import EventKind, RecordedEvent
from gpu_recovery.core.instance.record import InstanceStatus

BEFORE = timedelta(minutes=1)
"""Time before a failure of which a repair still belongs to it: the agent may see the fault before the job fails."""
_WORKS_OR_GONE = (InstanceStatus.AVAILABLE.value, InstanceStatus.GONE.value)


def repairs_of(events: Iterable[RecordedEvent]) -> list[tuple[RecordedEvent, ...]]:
    """Return the events of one instance, divided into repairs. The last repair may not have ended."""
    repairs: list[list[RecordedEvent]] = []
    under_way = False
    moves = {event.event_id: event for event in events if event.kind is EventKind.INSTANCE}
    for event in sorted(moves.values(), key=lambda event: event.version):
        ends = event.after in _WORKS_OR_GONE
        if under_way:
            repairs[-1].append(event)
        elif not ends:
            repairs.append([event])
        under_way = not ends
    return [tuple(repair) for repair in repairs]


def repairs_between(events: Iterable[RecordedEvent], since: datetime, until: datetime) -> tuple[RecordedEvent, ...]:
    """Return the events of the repairs of one instance that began between `since`, or shortly before, and `until`."""
    begun = [repair for repair in repairs_of(events) if since - BEFORE <= repair[0].at <= until]
    return tuple(event for repair in begun for event in repair)
