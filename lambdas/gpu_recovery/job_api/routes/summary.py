"""Route of the summary: GPU-hours, recoveries and incidents of the last days."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta

from gpu_recovery.core.event_history.day_codec import DAYS, STANDINGS, day_texts, figures_of, standing_of
from gpu_recovery.core.event_history.recorded_event import event_of
from gpu_recovery.core.event_history.roll_up import FLEET, Figures, GroupKey, roll_up
from gpu_recovery.core.event_history.streams import EVENT, day_of, day_stream
from gpu_recovery.core.published_events import utc_text
from gpu_recovery.job_api.dependencies import Dependencies
from gpu_recovery.job_api.request import Parameter, Request, Route, between, one_of
from gpu_recovery.job_api.response import ApiResponse
from gpu_recovery.ports.event_history import HistoryReader
from gpu_recovery.wire.event_history import figures_view
from gpu_recovery.wire.json_body import time_text

DAYS_DEFAULT, DAYS_MAX = 7, 90
"""Days of a summary: default and upper bound."""
GROUPINGS = ("day", "user", "priority")
PARTS_MAX = 1_000
"""Items that are read at most. A day has one, unless it has thousands of users."""
EVENTS_MAX = 5_000
"""Events since the last roll-up that are read at most."""
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


def figures_by_day(
    history: HistoryReader, number: int, now: datetime
) -> tuple[dict[date, dict[GroupKey, Figures]], datetime | None]:
    """Return the figures of the last `number` days, today included, and the time until which they hold.

    The time is None if no day was rolled up.
    """
    today = day_of(now)
    first = today - timedelta(days=number - 1)
    items = history.read(DAYS, PARTS_MAX, after=first.isoformat(), before=(today + timedelta(days=1)).isoformat())
    texts = day_texts(items)
    by_day = {day: figures_of(text) for day, (_, text) in sorted(texts.items())}
    until = max((until for until, _ in texts.values()), default=None)
    return by_day, None if until is None else _go_on(history, by_day, until, now)


def fleet_total(by_day: Mapping[date, Mapping[GroupKey, Figures]]) -> Figures:
    """Return the figures of the whole fleet over all days."""
    total = Figures()
    for figures in by_day.values():
        total.add(figures.get(FLEET, Figures()))
    return total


def _go_on(
    history: HistoryReader, by_day: dict[date, dict[GroupKey, Figures]], since: datetime, now: datetime
) -> datetime:
    """Add the time since the last roll-up to the figures by day. Return the time until which the figures then hold.

    Args:
        history: the event history.
        by_day: figures by day, the last of which is the day of the last roll-up.
        since: time of the last roll-up.
        now: the present time.
    """
    day = max(by_day)
    items = history.read(STANDINGS, PARTS_MAX, after=day.isoformat(), before=(day + timedelta(days=1)).isoformat())
    texts = day_texts(items)
    if day not in texts or texts[day][0] != since:
        return since
    standing, left = standing_of(texts[day][1]), EVENTS_MAX
    at = min(since, _midnight(day + timedelta(days=1)))
    while at < now:
        day, end = day_of(at), min(_midnight(day_of(at) + timedelta(days=1)), now)
        events = [event_of(item.attributes[EVENT]) for item in history.read(day_stream(day), left, after=utc_text(at))]
        if len(events) == left:
            break
        left -= len(events)
        figures, standing = roll_up(standing, events, at, end)
        for key, group in figures.items():
            by_day.setdefault(day, {}).setdefault(key, Figures()).add(group)
        at = end
    return max(at, since)


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


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
