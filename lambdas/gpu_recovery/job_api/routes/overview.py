"""Route of the overview: what an operator looks at first. It reads snapshots and the event history, and no record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpu_recovery.core.console_snapshots import SnapshotName
from gpu_recovery.job_api.dependencies import Dependencies
from gpu_recovery.job_api.history_figures import history_figures
from gpu_recovery.job_api.request import Request, Route
from gpu_recovery.job_api.response import ApiResponse

LISTED_MAX = 20
"""Upper bound of the instances in the list of those that need an operator."""
_LIMITS = (
    "gpu_instances",
    "observe_only",
    "replace",
    "repairing",
    "repairs_at_once_max",
    "breaker",
    "pause",
    "deaf",
)
"""Properties of the fleet limits that the overview shows."""


def read_overview(dependencies: Dependencies, request: Request) -> ApiResponse:
    """Return the overview. A part whose snapshot is missing is null or empty."""
    now = dependencies.recovery.clock()
    fleet, queue = (dependencies.snapshots.load(name, now) for name in (SnapshotName.LIMITS, SnapshotName.QUEUE))
    limits = fleet.get("limits", {})
    history = history_figures(dependencies)
    waiting_for_operator = limits.get("for_a_person", [])
    return ApiResponse(
        200,
        {
            "as_of": fleet.get("as_of"),
            "queue_as_of": queue.get("as_of"),
            "fleet": fleet.get("totals"),
            "limits": {name: limits[name] for name in _LIMITS} if limits else None,
            "held": len(limits.get("held", [])),
            "for_a_person": waiting_for_operator[:LISTED_MAX],
            "for_a_person_more": max(0, len(waiting_for_operator) - LISTED_MAX),
            "totals": queue.get("totals", []),
            "quotas": queue.get("quotas", []),
            "incidents": history.incidents,
            "events": history.events,
            "week": history.week,
            "dead_letters": _dead_letters(dependencies),
        },
    )


def _dead_letters(dependencies: Dependencies) -> Mapping[str, Any] | None:
    """Return the numbers of dead letters by queue; None if they cannot be read, which must not hide the rest."""
    try:
        return dependencies.dead_letter_counts.read(dependencies.dead_letters, dependencies.recovery.clock())
    except Exception as error:
        dependencies.log.warning("dead letters not counted", exc_info=error)
        return None


ROUTES = (Route("GET", "/api/v2/overview", read_overview, "What an operator looks at first", {200: "Overview"}),)
