"""Queries of the event history that routes and the overview answer with: events, incidents, and figures of days."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime, time, timedelta

from gpu_recovery.core.event_history.day_codec import DAYS, STANDINGS, day_texts, figures_of, standing_of
from gpu_recovery.core.event_history.incidents import Incident, events_in, incident_of
from gpu_recovery.core.event_history.recorded_event import RecordedEvent, event_of
from gpu_recovery.core.event_history.roll_up import FLEET, Figures, GroupKey, roll_up
from gpu_recovery.core.event_history.streams import EVENT, INCIDENTS, OPEN_INCIDENTS, StoredItem, day_of, day_stream
from gpu_recovery.core.published_events import utc_text
from gpu_recovery.ports.errors import CursorInvalid
from gpu_recovery.ports.event_history import HistoryReader

READ_MAX = 1_000
"""Events that one request reads at most to find those that match the query."""
DAYS_BACK_MAX = 7
"""Days that a request without a position in one stream goes back at most."""
LATE = timedelta(seconds=30)
"""Time within which an event usually arrives. A client reads the events of so long again, so that an event that another
overtakes is not missed. The client gets such events twice, and knows them by their id."""
INCIDENTS_READ_MAX = 1_000
"""Incidents that one request reads at most to fill its page."""
INCIDENTS_CHUNK = 50
"""Incidents that are read at once at least to find those of a job."""
PARTS_MAX = 1_000
"""Items that are read at most. A day has one, unless it has thousands of users."""
EVENTS_SINCE_MAX = 5_000
"""Events since the last roll-up that are read at most."""
Found = list[tuple[StoredItem, RecordedEvent]]
Matches = Callable[[RecordedEvent], bool]


def events_of(
    history: HistoryReader, stream: str, limit: int, *, after: str = "", before: str = "", newest_first: bool = False
) -> list[RecordedEvent]:
    """Return at most `limit` events of a stream, in the order of time or the newest first."""
    items = history.read(stream, limit, after=after, before=before, newest_first=newest_first)
    return [event_of(item.attributes[EVENT]) for item in items]


def latest_events(
    history: HistoryReader, stream: str, limit: int, matches: Matches, now: datetime, chunk: int
) -> Found:
    """Return the latest events that match. The history is read in chunks of so many events."""
    found: Found = []
    today, left = day_of(now), READ_MAX
    streams = [stream] if stream else [day_stream(today - timedelta(days=back)) for back in range(DAYS_BACK_MAX)]
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


def following_events(
    history: HistoryReader, stream: str, after: str, limit: int, matches: Matches, now: datetime, chunk: int
) -> tuple[Found, list[str], bool]:
    """Return the first events after a position that match.

    Returns:
        The events, the positions of all that were read up to the last of them, and whether there are no more.
    """
    found: Found = []
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
    """Yield the streams of the days from a position to now, at most DAYS_BACK_MAX."""
    try:
        first = date.fromisoformat(position[:10])
    except ValueError as error:
        raise CursorInvalid("the cursor is of another release: begin without one") from error
    last = day_of(now + LATE)
    day = max(first, last - timedelta(days=DAYS_BACK_MAX))
    while day <= last:
        yield day_stream(day)
        day += timedelta(days=1)


def latest_incidents(
    history: HistoryReader, limit: int, state: str = "all", job_id: str | None = None, before: str = ""
) -> tuple[list[Incident], str]:
    """Return the latest incidents, and the position before which the next page begins; "" after the last page.

    Args:
        history: the event history.
        limit: upper bound of the incidents.
        state: all, open or closed.
        job_id: only incidents of this job; None: of every job.
        before: position before which the page begins; "" for the latest.
    """
    found: list[Incident] = []
    left, chunk = INCIDENTS_READ_MAX, limit if job_id is None else max(limit, INCIDENTS_CHUNK)
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
    standing, left = standing_of(texts[day][1]), EVENTS_SINCE_MAX
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
