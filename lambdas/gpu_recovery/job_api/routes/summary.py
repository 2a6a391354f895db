"""Route of the summary: GPU-hours, recoveries and incidents of the last days."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta

from gpu_recovery.core.event_history.day_codec import DAYS, day_texts, figures_of
from gpu_recovery.core.event_history.roll_up import FLEET, Figures, GroupKey
from gpu_recovery.core.event_history.streams import day_of
from gpu_recovery.job_api.dependencies import Dependencies
from gpu_recovery.job_api.request import Parameter, Request, Route
from gpu_recovery.job_api.response import ApiResponse
from gpu_recovery.wire.event_history import figures_view
from gpu_recovery.wire.json_body import time_text

DAYS_DEFAULT, DAYS_MAX = 7, 90
"""Days of a summary: default and upper bound."""
GROUPINGS = ("day", "user", "priority")
PARTS_MAX = 1_000
"""Items that are read at most. A day has one, unless it has thousands of users."""
ROWS_MAX = 1_000
"""Rows of an answer at most: those with the most GPU-hours."""


def read_summary(dependencies: Dependencies, request: Request) -> ApiResponse:
    """Return the figures of the last days, today included, by day, by user or by priority, and of all of them together.

    A day that the event recorder has not rolled up is missing.

    Raises:
        ApiError: 400, a parameter is malformed.
    """
    number = request.number("days", DAYS_DEFAULT, 1, DAYS_MAX) or DAYS_DEFAULT
    grouping = request.choice("by", "day", *GROUPINGS)
    today = day_of(dependencies.recovery.clock())
    first = today - timedelta(days=number - 1)
    items = dependencies.history.read(
        DAYS, PARTS_MAX, after=first.isoformat(), before=(today + timedelta(days=1)).isoformat()
    )
    texts = day_texts(items)
    by_day = {day: figures_of(text) for day, (_, text) in sorted(texts.items())}
    total, rows = Figures(), dict[str, Figures]()
    for day, figures in by_day.items():
        total.add(figures.get(FLEET, Figures()))
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
            "as_of": time_text(max((until for until, _ in texts.values()), default=None)),
            "rows": [{"name": name, **figures_view(rows[name])} for name in ordered[:ROWS_MAX]],
            "total": figures_view(total),
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
        "GPU-hours, recoveries and incidents of the last days",
        {200: "Summary"},
        query=(
            Parameter("days", "how many days", {"type": "integer", "minimum": 1, "maximum": DAYS_MAX}),
            Parameter("by", "what a row is about", {"type": "string", "enum": list(GROUPINGS)}),
        ),
    ),
)
