"""Route of the stored events of all records since a time, for programs that replay them."""

from __future__ import annotations

import json
from datetime import date, timedelta
from typing import Any

from gpu_recovery.core.event_history.streams import EVENT, EVENTS_KEPT, day_of, day_stream
from gpu_recovery.core.published_events import utc_text
from gpu_recovery.job_api.dependencies import Dependencies
from gpu_recovery.job_api.history_queries import LATE
from gpu_recovery.job_api.pagination import signed_cursor, verified_position
from gpu_recovery.job_api.request import TEXT, TIME, Parameter, Request, Route, between
from gpu_recovery.job_api.response import ApiError, ApiResponse

PURPOSE = "event records"
"""Name of the list, which its cursors belong to."""
PAGE_MAX = 200
"""Records of a page: default and upper bound. A record has at most about 25 KB."""
DAYS_MAX = 7
"""Days that one request reads at most."""


def list_event_records(dependencies: Dependencies, request: Request) -> ApiResponse:
    """Return a page of the events as they are stored, in the order of time, with their replay facts.

    A page may be empty although others follow. The history keeps events for 90 days.

    Raises:
        ApiError: 400, a parameter is malformed, or `since` is missing.
        CursorInvalid: the cursor was issued for another list, or was not issued at all.
    """
    since, asked = request.time("since"), request.query.get("cursor")
    if since is None:
        raise ApiError(400, "bad_query", "Bad since", "must be given", "since")
    limit = request.number("limit", PAGE_MAX)
    since = max(since, dependencies.recovery.clock() - EVENTS_KEPT)
    after = utc_text(since) if asked is None else verified_position(dependencies.cursor_key(), PURPOSE, asked)
    records: list[dict[str, Any]] = []
    day, last = date.fromisoformat(after[:10]), day_of(dependencies.recovery.clock() + LATE)
    end = min(last, day + timedelta(days=DAYS_MAX - 1))
    position: str | None = None
    while day <= end:
        items = dependencies.history.read(day_stream(day), limit - len(records), after=after)
        records += [json.loads(item.attributes[EVENT]) for item in items]
        if len(records) == limit:
            position = items[-1].position
            break
        day += timedelta(days=1)
    else:
        position = day.isoformat() if day <= last else None
    cursor = None if position is None else signed_cursor(dependencies.cursor_key(), PURPOSE, position)
    return ApiResponse(200, {"records": records, "next_cursor": cursor})


ROUTES = (
    Route(
        "GET",
        "/api/v2/events/records",
        list_event_records,
        "List the stored events since a time",
        {200: "EventRecords"},
        query=(
            Parameter("since", "Only events at or after this time.", TIME, required=True),
            Parameter("limit", "Upper bound of the entries of a page.", between(1, PAGE_MAX)),
            Parameter("cursor", "`next_cursor` of the page before.", TEXT),
        ),
    ),
)
