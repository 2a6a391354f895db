"""Streams of the event history: their names, the position of an event in them, and the items of an event.

A stream is a partition of the table, ordered by position. An event has one item in the stream of its day, and one in
the stream of each thing that it is about. The position is made of the event alone, so the same event is one item.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta

from gpu_recovery.core.event_history.recorded_event import RecordedEvent
from gpu_recovery.core.lazy_dataclass import frozen_dataclass
from gpu_recovery.core.published_events import utc_text

EVENTS_KEPT, INCIDENTS_KEPT, DAYS_KEPT = timedelta(days=90), timedelta(days=365), timedelta(days=730)
"""How long events, incidents and the figures of a day are kept."""
INCIDENTS, OPEN_INCIDENTS = "incidents", "incidents#open"
"""Streams of all incidents and of those that may be open, both by the time of their start."""
EVENT = "event"
"""Attribute of an item that holds the text of an event."""
CLAIMED_UNTIL = "claimed_until"
"""Attribute of an item that holds the end of a claim."""
CLAIMS_KEPT = timedelta(days=1)
"""How long a claim is kept after its end."""


@frozen_dataclass()
class HistoryItem:
    """An item to write: its attributes are added to those of the stored item, whose other attributes stay.

    position:   sort key.
    attributes: texts by attribute name.
    expires_at: time after which the item may be deleted; None: never.
    """

    stream: str
    position: str
    attributes: Mapping[str, str]
    expires_at: datetime | None


@frozen_dataclass()
class StoredItem:
    """An item as it is stored, without its stream."""

    position: str
    attributes: Mapping[str, str]


def day_stream(day: date) -> str:
    """Return the stream of the events of a day in UTC."""
    return f"events#{day.isoformat()}"


def job_stream(job_id: str) -> str:
    """Return the stream of the events of a job, with those of instances that are checked or repaired for it."""
    return f"job#{job_id}"


def instance_stream(instance_id: str) -> str:
    """Return the stream of the events of an instance."""
    return f"instance#{instance_id}"


def incident_stream(incident_id: str) -> str:
    """Return the stream of the events that name an incident."""
    return f"incident#{incident_id}"


def position_of(event: RecordedEvent) -> str:
    """Return the position of an event: its time, record, version and kind."""
    return f"{utc_text(event.at)}#{event.record}#{event.version:010d}#{event.kind}"


def day_of(at: datetime) -> date:
    """Return the day of a time, in UTC."""
    return at.astimezone(UTC).date()


def event_items(event: RecordedEvent, text: str) -> tuple[HistoryItem, ...]:
    """Return the items of an event in the streams of its day, its job, its instance and its incident.

    Args:
        event: the event.
        text: its stored text.
    """
    streams = [day_stream(day_of(event.at))]
    if event.job_id:
        streams.append(job_stream(event.job_id))
    if event.instance_id:
        streams.append(instance_stream(event.instance_id))
    if event.incident_id:
        streams.append(incident_stream(event.incident_id))
    position, expires_at = position_of(event), event.at + EVENTS_KEPT
    return tuple(HistoryItem(stream, position, {EVENT: text}, expires_at) for stream in streams)
