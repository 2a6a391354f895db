"""Figures of the event history that the overview shows: open incidents, last events, and the last seven days."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gpu_recovery.job_api.dependencies import Dependencies

INCIDENTS_MAX = EVENTS_MAX = 20
"""Upper bounds of the open incidents and of the events of an overview."""


@dataclass(frozen=True, slots=True)
class HistoryFigures:
    """What the event history tells the overview.

    incidents: open incidents, the newest first (schema `OpenIncident`).
    events:    the last events, the newest last (schema `FeedEvent`).
    week:      figures of the last seven days (schema `WeekFigures`); None if there are none.
    """

    incidents: list[dict[str, Any]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    week: dict[str, Any] | None = None


def history_figures(dependencies: Dependencies) -> HistoryFigures:
    """Return the figures of the event history; empty where the deployment keeps none."""
    return HistoryFigures()
