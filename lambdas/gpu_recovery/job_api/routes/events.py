"""Route of the event feed: the latest events, or those since the last call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gpu_recovery.core.event_history.recorded_event import EventKind, RecordedEvent
from gpu_recovery.core.event_history.streams import (
    StoredItem,
    incident_stream,
    instance_stream,
    job_stream,
)
from gpu_recovery.core.published_events import utc_text
from gpu_recovery.job_api.dependencies import Dependencies
from gpu_recovery.job_api.history_queries import LATE, following_events, latest_events
from gpu_recovery.job_api.pagination import signed_cursor, verified_position
from gpu_recovery.job_api.request import TEXT, Parameter, Request, Route, between, one_of
from gpu_recovery.job_api.response import ApiError, ApiResponse
from gpu_recovery.wire.event_history import event_view

PAGE_DEFAULT, PAGE_MAX = 50, 200
"""Events of an answer: default and upper bound."""
STREAM_CHARACTERS_MAX = 300
"""Upper bound of the characters of an id in a query, and of the word before it."""
KINDS = [kind.value for kind in EventKind]


def list_events(dependencies: Dependencies, request: Request) -> ApiResponse:
    """Return events in the order of time, the newest last: those after a cursor, or else the latest.

    An event that arrives more than half a minute late is not delivered to a client that has read on. Lists of the
    events of a job, an instance or an incident have it.

    Raises:
        ApiError: 400, a parameter is malformed.
        CursorInvalid: the cursor was issued for another list, or was not issued at all.
    """
    kind = request.choice("kind", "") or None
    limit = request.number("limit", PAGE_DEFAULT)
    stream = _stream(request)
    purpose = f"events\n{stream}"
    cursor, now = request.query.get("after"), dependencies.recovery.clock()

    def matches(event: RecordedEvent) -> bool:
        return kind is None or event.kind == kind

    # Without a filter every event that is read is in the answer.
    chunk = limit if kind is None else PAGE_MAX
    if cursor is None:
        events = latest_events(dependencies.history, stream, limit, matches, now, chunk)
        old = [stored.position for stored, event in events if event.at <= now - LATE]
        following = _Cursor(old[-1] if old else utc_text(now - LATE))
    else:
        asked = _Cursor.of(verified_position(dependencies.cursor_key(), purpose, cursor))
        history = dependencies.history
        events, positions, is_end = following_events(history, stream, asked.after, limit, matches, now, chunk)
        following = asked.following(positions, is_end, utc_text(now - LATE))
    return ApiResponse(
        200,
        {
            "events": [event_view(event) for _, event in events],
            "next_cursor": signed_cursor(dependencies.cursor_key(), purpose, following.text),
        },
    )


_Found = list[tuple[StoredItem, RecordedEvent]]
_Matches = Callable[[RecordedEvent], bool]


@dataclass(frozen=True, slots=True)
class _Cursor:
    """Where a client goes on.

    after: position after which the next answer begins.
    back:  position to which the client goes back once it has read all events; "" if each event before `after` had LATE
        to arrive before it was read.
    """

    after: str
    back: str = ""

    @classmethod
    def of(cls, text: str) -> _Cursor:
        """Return the cursor of a text."""
        after, _, back = text.partition("\n")
        return cls(after, back)

    @property
    def text(self) -> str:
        """The cursor as a text."""
        return f"{self.after}\n{self.back}" if self.back else self.after

    def following(self, positions: Sequence[str], is_end: bool, settled: str) -> _Cursor:
        """Return the cursor of the answer.

        Args:
            positions: positions of the events that were read, in order.
            is_end: whether there are no more events.
            settled: position before which all events have arrived.
        """
        if not is_end:
            young = max(self.after, settled) if positions[-1] > settled else ""
            return _Cursor(positions[-1], self.back or young)
        if self.back:
            return _Cursor(self.back)
        old = [position for position in positions if position <= settled]
        return _Cursor(old[-1]) if old else self


def _stream(request: Request) -> str:
    """Return the stream that the query names; "" for the streams of the days.

    Raises:
        ApiError: 400, the query names more than one thing.
    """
    streams = {"job": job_stream, "instance": instance_stream, "incident": incident_stream}
    named = [(name, streams[name](request.query[name])) for name in streams if request.query.get(name)]
    if len(named) > 1:
        detail = "give only one of job, instance and incident"
        raise ApiError(400, "bad_query", f"Bad {named[1][0]}", detail, named[1][0])
    for name, stream in named:
        if len(stream) > STREAM_CHARACTERS_MAX or not (stream.isascii() and stream.isprintable()):
            raise ApiError(400, "bad_query", f"Bad {name}", "must be an id", name)
    return named[0][1] if named else ""


ROUTES = (
    Route(
        "GET",
        "/api/v2/events",
        list_events,
        "List the latest events, or those after a cursor",
        {200: "Events"},
        query=(
            Parameter("after", "`next_cursor` of the last answer.", TEXT),
            Parameter("job", "Only events of this job.", TEXT),
            Parameter("instance", "Only events of this instance.", TEXT),
            Parameter("incident", "Only events of this incident.", TEXT),
            Parameter("kind", "Only events of this kind.", one_of(*KINDS)),
            Parameter("limit", "Upper bound of the events.", between(1, PAGE_MAX)),
        ),
    ),
)
