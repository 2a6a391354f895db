"""Figures of the event history that the overview shows: open incidents, last events, and the last seven days."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gpu_recovery.job_api.dependencies import Dependencies
from gpu_recovery.job_api.routes.events import latest_events
from gpu_recovery.job_api.routes.incidents import latest_incidents
from gpu_recovery.job_api.routes.summary import figures_by_day, fleet_total
from gpu_recovery.wire.event_history import event_view, figures_view, incident_view

INCIDENTS_MAX = EVENTS_MAX = 20
"""Upper bounds of the open incidents and of the events of an overview."""
DAYS = 7
"""Days of the figures of an overview."""


@dataclass(frozen=True, slots=True)
class HistoryFigures:
    """What the event history tells the overview.

    incidents: open incidents, the newest first.
    events:    the last events, the newest last.
    week:      figures of the last seven days; None if no day was rolled up yet.
    """

    incidents: list[dict[str, Any]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    week: dict[str, Any] | None = None


def history_figures(dependencies: Dependencies) -> HistoryFigures:
    """Return the figures of the event history, read at most once in five seconds.

    An event history that cannot be read must not hide the rest of the overview: its figures are empty then.
    """
    now = dependencies.recovery.clock()
    try:
        figures: HistoryFigures = dependencies.history_cache.get("", now, lambda: _read(dependencies))
    except Exception as error:
        dependencies.log.warning("event history not read", exc_info=error)
        return HistoryFigures()
    return figures


def _read(dependencies: Dependencies) -> HistoryFigures:
    history, now = dependencies.history, dependencies.recovery.clock()
    incidents, _ = latest_incidents(history, INCIDENTS_MAX, "open")
    events = latest_events(history, "", EVENTS_MAX, lambda event: True, now, EVENTS_MAX)
    by_day, until = figures_by_day(history, DAYS, now)
    return HistoryFigures(
        [incident_view(incident, now) for incident in incidents],
        [event_view(event) for _, event in events],
        None if until is None else figures_view(fleet_total(by_day)),
    )
