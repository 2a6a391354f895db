"""Recording of one event. Every write is repeatable, and events may arrive in any order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpu_recovery.core.event_history.incidents import events_in, incident_items, incident_of, open_item
from gpu_recovery.core.event_history.recorded_event import RecordedEvent, event_of, text_of
from gpu_recovery.core.event_history.streams import OPEN_INCIDENTS, event_items
from gpu_recovery.ports.event_history import EventHistory


def record(history: EventHistory, detail_type: str, detail: Mapping[str, Any], sent_at: str) -> RecordedEvent:
    """Write an event into its streams and into its incident.

    Args:
        history: the event history.
        detail_type: detail type of the event.
        detail: detail of the event.
        sent_at: time at which the bus received the event.

    Returns:
        The event.

    Raises:
        RecordedEventUnreadable: the event does not follow its schema. Nothing is written.
    """
    text = text_of(detail_type, detail, sent_at)
    event = event_of(text)
    for item in event_items(event, text):
        history.merge(item)
    for item in incident_items(event, text):
        attributes = history.merge(item)
        if attributes is None:  # an incident that is too large keeps its first events; its stream has all of them
            attributes = history.load(item.stream, [item.position])[item.position]
        incident = incident_of((*events_in(attributes), event))
        if incident is not None and incident.is_open:
            history.merge(open_item(incident))
        else:
            history.remove(OPEN_INCIDENTS, event.incident_id)
    return event
