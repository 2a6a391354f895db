"""Recording of one event. Every write is repeatable, and events may arrive in any order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gpu_recovery.core.event_history.incidents import events_in, giving_way, incident_items, incident_of, open_item
from gpu_recovery.core.event_history.recorded_event import RecordedEvent, event_of, text_of
from gpu_recovery.core.event_history.streams import OPEN_INCIDENTS, HistoryItem, event_items
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
        if attributes is None:
            attributes = _merge_into_full(history, item, event)
        _list_if_open(history, item, event.incident_id, attributes)
    return event


def _list_if_open(history: EventHistory, item: HistoryItem, incident_id: str, attributes: Mapping[str, str]) -> None:
    """Add the incident to the open incidents if it is open, else remove it, until its item says the same afterwards.

    Recorders of other events of the incident do the same meanwhile. The last write agrees with the item, because the
    recorder that makes it reads the item after it.

    Args:
        history: the event history.
        item: the item of the incident.
        incident_id: the incident.
        attributes: attributes of the item after the event was added.
    """
    is_listed: bool | None = None
    while (is_open := _is_open(attributes)) is not is_listed:
        if is_open:
            history.merge(open_item(item, incident_id))
        else:
            history.remove(OPEN_INCIDENTS, item.position)
        is_listed, attributes = is_open, history.load_now(item.stream, item.position)


def _is_open(attributes: Mapping[str, str]) -> bool:
    incident = incident_of(events_in(attributes))
    return incident is not None and incident.is_open


def _merge_into_full(history: EventHistory, item: HistoryItem, event: RecordedEvent) -> Mapping[str, str]:
    """Write the event into the full item of its incident. Return the attributes of the item.

    Older events lose their text for it. The stream of the incident has all of them.
    """
    stored = history.load_now(item.stream, item.position)
    wanted, emptied = sum(len(text.encode()) for text in item.attributes.values()), dict[str, str]()
    for name in giving_way(stored, event.version):
        emptied[name] = ""
        if sum(len(stored[each].encode()) for each in emptied) <= wanted:
            continue
        merged = history.merge(replace(item, attributes={**emptied, **item.attributes}))
        if merged is not None:
            return merged
    return stored
