"""Figures of the event history that the overview shows: open incidents, last events, and the last seven days."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

from gpu_recovery.core.event_history.recorded_event import RecordedEventUnreadable
from gpu_recovery.job_api.dependencies import Dependencies
from gpu_recovery.job_api.history_queries import figures_by_day, fleet_total, latest_events, latest_incidents
from gpu_recovery.ports.errors import StorageFailed
from gpu_recovery.wire.event_history import event_view, figures_view, incident_view

INCIDENTS_MAX = EVENTS_MAX = 20
"""Upper bounds of the open incidents and of the events of an overview."""
DAYS = 7
"""Days of the figures of an overview."""
Value = TypeVar("Value")


def open_incident_views(dependencies: Dependencies, now: datetime) -> list[dict[str, Any]]:
    """Return the open incidents, the newest first, read at most once in five seconds.

    Raises:
        Unavailable: the event history did not answer.
        StorageFailed: it refused the read, or holds an event that cannot be read.
    """

    def read() -> list[dict[str, Any]]:
        incidents, _ = latest_incidents(dependencies.history, INCIDENTS_MAX, "open")
        return [incident_view(incident, now) for incident in incidents]

    return dependencies.history_cache.get("incidents", now, lambda: _readable(read))


def latest_event_views(dependencies: Dependencies, now: datetime) -> list[dict[str, Any]]:
    """Return the last events, the newest last, read at most once in five seconds.

    Raises:
        Unavailable: the event history did not answer.
        StorageFailed: it refused the read, or holds an event that cannot be read.
    """

    def read() -> list[dict[str, Any]]:
        events = latest_events(dependencies.history, "", EVENTS_MAX, lambda event: True, now, EVENTS_MAX)
        return [event_view(event) for _, event in events]

    return dependencies.history_cache.get("events", now, lambda: _readable(read))


def week_view(dependencies: Dependencies, now: datetime) -> dict[str, Any] | None:
    """Return the figures of the last seven days, read at most once a minute; None if no day was rolled up yet.

    Raises:
        Unavailable: the event history did not answer.
        StorageFailed: it refused the read, or holds figures that cannot be read.
    """

    def read() -> dict[str, Any] | None:
        by_day, until = figures_by_day(dependencies.history, DAYS, now)
        return None if until is None else figures_view(fleet_total(by_day))

    return dependencies.week_cache.get("", now, lambda: _readable(read))


def _readable(read: Callable[[], Value]) -> Value:
    """Return what `read` returns. A stored text that is malformed must not hide the rest of an overview."""
    try:
        return read()
    except RecordedEventUnreadable as error:
        raise StorageFailed("the event history holds a text that cannot be read") from error
