"""Routes of incidents: list them, and read one as a thread."""

from __future__ import annotations

from gpu_recovery.core.event_history.incidents import incident_of
from gpu_recovery.core.event_history.recorded_event import RecordedEvent
from gpu_recovery.core.event_history.repairs import BEFORE, repairs_between
from gpu_recovery.core.event_history.streams import (
    incident_stream,
    instance_stream,
    job_stream,
)
from gpu_recovery.core.event_history.thread import AFTER, thread_of
from gpu_recovery.core.published_events import utc_text
from gpu_recovery.job_api.dependencies import Dependencies
from gpu_recovery.job_api.history_queries import events_of, latest_incidents
from gpu_recovery.job_api.pagination import signed_cursor, verified_position
from gpu_recovery.job_api.request import TEXT, Parameter, Request, Route, between, one_of
from gpu_recovery.job_api.response import ApiError, ApiResponse
from gpu_recovery.wire.event_history import incident_view, thread_view

PURPOSE = "incidents"
"""Name of the list, which its cursors belong to."""
STATES = ("all", "open", "closed")
PAGE_DEFAULT, PAGE_MAX = 50, 200
"""Incidents of a page: default and upper bound."""
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


def read_incident(dependencies: Dependencies, request: Request) -> ApiResponse:
    """Return one incident as a thread: its events, and those of the instances that were checked or repaired for it.

    Raises:
        ApiError: 404, the event history has no such incident.
    """
    incident_id, history = request.named["incident_id"], dependencies.history
    own = events_of(history, incident_stream(incident_id), OWN_EVENTS_MAX)
    incident = incident_of(own)
    if incident is None:
        detail = f"the event history has no incident {incident_id}"
        raise ApiError(404, "no_such_incident", "No such incident", detail)
    others: list[RecordedEvent] = []
    if incident.job_id:
        since, until = utc_text(incident.opened_at), incident.closed_at and utc_text(incident.closed_at + AFTER)
        others = events_of(history, job_stream(incident.job_id), JOB_EVENTS_MAX, after=since, before=until or "")
    now = dependencies.recovery.clock()
    repairs: list[RecordedEvent] = []
    for name in incident.instances:
        since = utc_text(incident.opened_at - BEFORE)
        course = events_of(history, instance_stream(name), REPAIR_EVENTS_MAX, after=since)
        repairs += repairs_between(course, incident.opened_at, incident.closed_at or now)
    return ApiResponse(200, thread_view(incident, thread_of(incident, (*own, *others), repairs), now))


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
