"""Route of the overview: what an operator looks at first. It reads snapshots and the event history, and no record."""

from __future__ import annotations

from gpu_recovery.core.console_snapshots import SnapshotName
from gpu_recovery.job_api.dependencies import Dependencies
from gpu_recovery.job_api.history_figures import latest_event_views, open_incident_views, week_view
from gpu_recovery.job_api.overview_parts import OverviewPart, OverviewParts
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
    """Return the overview. A part that was never written is null or empty. So is a part of `missing`."""
    parts, snapshots = OverviewParts(dependencies), dependencies.snapshots
    fleet = parts.read(OverviewPart.FLEET, lambda now: snapshots.load(SnapshotName.LIMITS, now)) or {}
    queue = parts.read(OverviewPart.QUEUE, lambda now: snapshots.load(SnapshotName.QUEUE, now)) or {}
    incidents = parts.read(OverviewPart.INCIDENTS, lambda now: open_incident_views(dependencies, now))
    events = parts.read(OverviewPart.EVENTS, lambda now: latest_event_views(dependencies, now))
    week = parts.read(OverviewPart.WEEK, lambda now: week_view(dependencies, now))
    dead_letters = parts.read(
        OverviewPart.DEAD_LETTERS,
        lambda now: dependencies.dead_letter_counts.read(dependencies.dead_letters, now),
    )
    limits = fleet.get("limits", {})
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
            "incidents": incidents or [],
            "events": events or [],
            "week": week,
            "dead_letters": dead_letters,
            "missing": list(parts.missing),
        },
    )


ROUTES = (Route("GET", "/api/v2/overview", read_overview, "Read the overview", {200: "Overview"}),)
