"""Route of the summary: GPU-hours, recoveries and incidents of the last days."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta

from gpu_recovery.core.event_history.roll_up import FLEET, Figures, GroupKey
from gpu_recovery.core.event_history.streams import day_of
from gpu_recovery.job_api.dependencies import Dependencies
from gpu_recovery.job_api.history_queries import figures_by_day, fleet_total
from gpu_recovery.job_api.request import Parameter, Request, Route, between, one_of
from gpu_recovery.job_api.response import ApiResponse
from gpu_recovery.wire.event_history import figures_view
from gpu_recovery.wire.json_body import time_text

DAYS_DEFAULT, DAYS_MAX = 7, 90
"""Days of a summary: default and upper bound."""
GROUPINGS = ("day", "user", "priority")
ROWS_MAX = 1_000
"""Rows of an answer at most: those with the most GPU-hours."""


def read_summary(dependencies: Dependencies, request: Request) -> ApiResponse:
    """Return the figures of the last days, today included, by day, by user or by priority, and of all of them together.

    The event recorder has rolled up the days. The time since then is added here: while nothing happens, jobs run on.

    Raises:
        ApiError: 400, a parameter is malformed.
    """
    number = request.number("days", DAYS_DEFAULT)
    grouping = request.choice("by", "day")
    now = dependencies.recovery.clock()
    by_day, until = figures_by_day(dependencies.history, number, now)
    first = day_of(now) - timedelta(days=number - 1)
    rows = dict[str, Figures]()
    for day, figures in by_day.items():
        for key, group in figures.items():
            name = _NAMES[grouping](day, key)
            if name is not None:
                rows.setdefault(name, Figures()).add(group)
    ordered = sorted(rows) if grouping == "day" else sorted(rows, key=lambda name: (-rows[name].held, name))
    return ApiResponse(
        200,
        {
            "by": grouping,
            "since": first.isoformat(),
            "as_of": time_text(until),
            "rows": [{"name": name, **figures_view(rows[name])} for name in ordered[:ROWS_MAX]],
            "total": figures_view(fleet_total(by_day)),
        },
    )


_NAMES: dict[str, Callable[[date, GroupKey], str | None]] = {
    "day": lambda day, key: day.isoformat() if key == FLEET else None,
    "user": lambda day, key: None if key == FLEET else key[0],
    "priority": lambda day, key: None if key == FLEET else key[1],
}
"""Name of the row that the figures of a day and a group belong to; None: of no row."""

ROUTES = (
    Route(
        "GET",
        "/api/v2/summary",
        read_summary,
        "Read the figures of the last days",
        {200: "Summary"},
        query=(
            Parameter("days", "Number of days, today included.", between(1, DAYS_MAX)),
            Parameter("by", "What a row stands for.", one_of(*GROUPINGS)),
        ),
    ),
)
