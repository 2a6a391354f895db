"""Routes of incidents: list them, and read one as a thread."""

from __future__ import annotations

from gpu_recovery.core.event_history.incidents import Incident, events_in, incident_of
from gpu_recovery.core.event_history.recorded_event import RecordedEvent, event_of
from gpu_recovery.core.event_history.repairs import BEFORE, repairs_between
from gpu_recovery.core.event_history.streams import (
    EVENT,
    INCIDENTS,
    OPEN_INCIDENTS,
    StoredItem,
    incident_stream,
    instance_stream,
    job_stream,
)
from gpu_recovery.core.event_history.thread import AFTER, thread_of
from gpu_recovery.core.published_events import utc_text
from gpu_recovery.job_api.dependencies import Dependencies
from gpu_recovery.job_api.pagination import signed_cursor, verified_position
from gpu_recovery.job_api.request import TEXT, Parameter, Request, Route, between, one_of
from gpu_recovery.job_api.response import ApiError, ApiResponse
from gpu_recovery.ports.event_history import HistoryReader
from gpu_recovery.wire.event_history import incident_view, thread_view

PURPOSE = "incidents"
"""Name of the list, which its cursors belong to."""
STATES = ("all", "open", "closed")
PAGE_DEFAULT, PAGE_MAX = 50, 200
"""Incidents of a page: default and upper bound."""
READ_MAX = 1_000
"""Incidents that one request reads at most to fill its page."""
OWN_EVENTS_MAX, JOB_EVENTS_MAX = 1_000, 8_000
"""Events that a thread reads at most: of the incident, and of its job. Each instance of a gang adds two."""
REPAIR_EVENTS_MAX = 100
"""Events that a thread reads at most of each instance that the incident names."""


def list_incidents(dependencies: Dependencies, request: Request) -> ApiResponse:
    """Return a page of the incidents, those that began last first.

    Raises:
        ApiError: 400, a parameter is malformed.
        CursorInvalid: the cursor was issued for another list, or was not issued at all.
    """
    state = request.choice("state", "all")
    limit = request.number("limit", PAGE_DEFAULT)
    job_id = request.query.get("job")
    purpose = f"{PURPOSE}\n{state}\n{job_id or ''}"
    asked = request.query.get("cursor")
    before = "" if asked is None else verified_position(dependencies.cursor_key(), purpose, asked)
    found, position = latest_incidents(dependencies.history, limit, state, job_id, before)
    now = dependencies.recovery.clock()
    return ApiResponse(
        200,
        {
            "incidents": [incident_view(incident, now) for incident in found],
            "next_cursor": signed_cursor(dependencies.cursor_key(), purpose, position) if position else None,
        },
    )


def latest_incidents(
    history: HistoryReader, limit: int, state: str = "all", job_id: str | None = None, before: str = ""
) -> tuple[list[Incident], str]:
    """Return the latest incidents, and the position before which the next page begins; "" after the last page.

    Args:
        history: the event history.
        limit: upper bound of the incidents.
        state: one of STATES.
        job_id: only incidents of this job; None: of every job.
        before: position before which the page begins; "" for the latest.
    """
    found: list[Incident] = []
    left, chunk = READ_MAX, limit if job_id is None else max(limit, PAGE_DEFAULT)
    while left > 0:
        items = history.read(OPEN_INCIDENTS if state == "open" else INCIDENTS, chunk, before=before, newest_first=True)
        if state == "open":  # an incident may stay in that stream for a moment after its end
            loaded = history.load(INCIDENTS, [item.position for item in items])
            items = tuple(StoredItem(item.position, loaded.get(item.position, {})) for item in items)
        left -= len(items)
        for item in items:
            before = item.position
            incident = incident_of(events_in(item.attributes))
            if incident is None or job_id not in (None, incident.job_id):
                continue
            if state in ("all", "open" if incident.is_open else "closed"):
                found.append(incident)
            if len(found) == limit:
                return found, "" if len(items) < chunk and item is items[-1] else before
        if len(items) < chunk:
            return found, ""
    return found, before


def read_incident(dependencies: Dependencies, request: Request) -> ApiResponse:
    """Return one incident as a thread: its events, and those of the instances that were checked or repaired for it.

    Raises:
        ApiError: 404, the event history has no such incident.
    """
    incident_id, history = request.named["incident_id"], dependencies.history
    own = _events(history, incident_stream(incident_id), OWN_EVENTS_MAX)
    incident = incident_of(own)
    if incident is None:
        detail = f"the event history has no incident {incident_id}"
        raise ApiError(404, "no_such_incident", "No such incident", detail)
    others: list[RecordedEvent] = []
    if incident.job_id:
        since, until = utc_text(incident.opened_at), incident.closed_at and utc_text(incident.closed_at + AFTER)
        others = _events(history, job_stream(incident.job_id), JOB_EVENTS_MAX, since, until or "")
    now = dependencies.recovery.clock()
    repairs: list[RecordedEvent] = []
    for name in incident.instances:
        since = utc_text(incident.opened_at - BEFORE)
        course = _events(history, instance_stream(name), REPAIR_EVENTS_MAX, since)
        repairs += repairs_between(course, incident.opened_at, incident.closed_at or now)
    return ApiResponse(200, thread_view(incident, thread_of(incident, (*own, *others), repairs), now))


def _events(history: HistoryReader, stream: str, limit: int, after: str = "", before: str = "") -> list[RecordedEvent]:
    return [event_of(item.attributes[EVENT]) for item in history.read(stream, limit, after=after, before=before)]


ROUTES = (
    Route(
        "GET",
        "/api/v2/incidents",
        list_incidents,
        "List the incidents, the latest first",
        {200: "Incidents"},
        query=(
            Parameter("state", "Only open or only closed incidents.", one_of(*STATES)),
            Parameter("job", "Only incidents of this job.", TEXT),
            Parameter("limit", "Upper bound of the entries of a page.", between(1, PAGE_MAX)),
            Parameter("cursor", "`next_cursor` of the page before.", TEXT),
        ),
    ),
    Route(
        "GET",
        "/api/v2/incidents/<incident_id>",
        read_incident,
        "Read an incident with its events",
        {200: "IncidentThread"},
    ),
)
