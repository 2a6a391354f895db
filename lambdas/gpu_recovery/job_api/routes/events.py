"""Route of the event feed: the latest events, or those since the last call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from gpu_recovery.core.event_history.recorded_event import EventKind, RecordedEvent, event_of
from gpu_recovery.core.event_history.streams import (
    EVENT,
    StoredItem,
    day_of,
    day_stream,
    incident_stream,
    instance_stream,
    job_stream,
)
from gpu_recovery.core.published_events import utc_text
from gpu_recovery.job_api.dependencies import Dependencies
from gpu_recovery.job_api.pagination import signed_cursor, verified_position
from gpu_recovery.job_api.request import TEXT, Parameter, Request, Route, between, one_of
from gpu_recovery.job_api.response import ApiError, ApiResponse
from gpu_recovery.ports.errors import CursorInvalid
from gpu_recovery.ports.event_history import HistoryReader
from gpu_recovery.wire.event_history import event_view

PAGE_DEFAULT, PAGE_MAX = 50, 200
"""Events of an answer: default and upper bound."""
READ_MAX = 1_000
"""Events that one request reads at most to find those that match the query."""
DAYS_MAX = 7
"""Days that a request without a position in one stream goes back at most."""
STREAM_CHARACTERS_MAX = 300
"""Upper bound of the characters of an id in a query, and of the word before it."""
LATE = timedelta(seconds=30)
"""Time within which an event usually arrives. A client reads the events of so long again, so that an event that another
overtakes is not missed. The client gets such events twice, and knows them by their id."""
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
        events, positions, is_end = _following(dependencies.history, stream, asked.after, limit, matches, now, chunk)
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
        detail = "a request may name a job, an instance or an incident, and not several of them"
        raise ApiError(400, "bad_query", f"Bad {named[1][0]}", detail, named[1][0])
    for name, stream in named:
        if len(stream) > STREAM_CHARACTERS_MAX or not (stream.isascii() and stream.isprintable()):
            raise ApiError(400, "bad_query", f"Bad {name}", "must be an id", name)
    return named[0][1] if named else ""


def latest_events(
    history: HistoryReader, stream: str, limit: int, matches: _Matches, now: datetime, chunk: int
) -> _Found:
    """Return the latest events that match. The history is read in chunks of so many events."""
    found: _Found = []
    today, left = day_of(now), READ_MAX
    streams = [stream] if stream else [day_stream(today - timedelta(days=back)) for back in range(DAYS_MAX)]
    for each in streams:
        before = ""
        while left > 0 and len(found) < limit:
            wanted = min(left, chunk)
            items = history.read(each, wanted, before=before, newest_first=True)
            found += [(item, event) for item in items if matches(event := event_of(item.attributes[EVENT]))]
            left -= len(items)
            if len(items) < wanted:
                break
            before = items[-1].position
        if left <= 0 or len(found) >= limit:
            break
    return found[:limit][::-1]


def _following(
    history: HistoryReader, stream: str, after: str, limit: int, matches: _Matches, now: datetime, chunk: int
) -> tuple[_Found, list[str], bool]:
    """Return the first events after a position that match.

    Returns:
        The events, the positions of all that were read up to the last of them, and whether there are no more.
    """
    found: _Found = []
    positions: list[str] = []
    for each in [stream] if stream else _days_since(after, now):
        while (left := READ_MAX - len(positions)) > 0:
            items = history.read(each, min(left, chunk), after=after)
            for item in items:
                after = item.position
                positions.append(after)
                if matches(event := event_of(item.attributes[EVENT])):
                    found.append((item, event))
                if len(found) >= limit:
                    return found, positions, False
            if len(items) < min(left, chunk):
                break
        else:
            return found, positions, False
    return found, positions, True


def _days_since(position: str, now: datetime) -> Iterator[str]:
    """Yield the streams of the days from a position to now, at most DAYS_MAX."""
    try:
        first = date.fromisoformat(position[:10])
    except ValueError as error:
        raise CursorInvalid("the cursor is of another release: begin without one") from error
    last = day_of(now + LATE)
    day = max(first, last - timedelta(days=DAYS_MAX))
    while day <= last:
        yield day_stream(day)
        day += timedelta(days=1)


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
