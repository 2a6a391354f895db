"""Roll-up of the days: today again and again, yesterday once more, and each day for which events arrived late.

There is no schedule: an event that finds the figures old rolls them up. While no event comes, nothing changes but the
time, and a reader goes on from what stood at the end of the last roll-up.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta

from gpu_recovery.core.event_history.day_codec import (
    DAYS,
    LATE_DAYS,
    STANDINGS,
    UNTIL,
    day_items,
    day_texts,
    figures_text,
    standing_of,
    standing_text,
)
from gpu_recovery.core.event_history.recorded_event import RecordedEvent, event_of
from gpu_recovery.core.event_history.roll_up import Standing, roll_up
from gpu_recovery.core.event_history.streams import (
    EVENT,
    EVENTS_KEPT,
    HistoryItem,
    day_of,
    day_stream,
)
from gpu_recovery.ports.event_history import EventHistory

DAYS_MAX = 14
"""Days that one run rolls up at most. The next run goes on."""
EVERY = timedelta(minutes=15)
"""How often the days are rolled up at most. A reader adds the time since then."""
SETTLED = timedelta(hours=1)
"""Time after the end of a day at which its events have arrived. Later events mark the day as late."""
PAGE = 1_000
"""Events that are read at once."""
ONE_DAY = timedelta(days=1)


def is_due(history: EventHistory, now: datetime) -> bool:
    """Return whether the days were not rolled up for EVERY."""
    newest = history.read(DAYS, 1, newest_first=True)
    return not newest or datetime.fromisoformat(newest[0].attributes[UNTIL]) <= now - EVERY


def mark_late(history: EventHistory, event: RecordedEvent, now: datetime) -> None:
    """Mark the day of an event as late if the day is over, so that it is rolled up again with the days after it."""
    if day_of(event.at) < day_of(now):
        _mark(history, day_of(event.at), now)


def _mark(history: EventHistory, day: date, now: datetime) -> None:
    history.merge(HistoryItem(LATE_DAYS, day.isoformat(), {"late": "1"}, now + EVENTS_KEPT))


def roll_up_days(history: EventHistory, now: datetime) -> tuple[date, ...]:
    """Roll up every day whose figures are missing or may have changed. Return the days, in order.

    Args:
        history: the event history.
        now: the present time.
    """
    late = [item.position for item in history.read(LATE_DAYS, DAYS_MAX)]
    due = _days(history, late, now)
    days = due[:DAYS_MAX]
    standing = _standing(history, days[0] - ONE_DAY)
    for mark in late:  # first, so that an event that arrives in the meantime marks its day again
        history.remove(LATE_DAYS, mark)
    for day in due[DAYS_MAX : DAYS_MAX + 1]:
        _mark(history, day, now)
    try:
        for day in days:
            begin = datetime.combine(day, time(), UTC)
            until = min(begin + ONE_DAY, now)
            figures, standing = roll_up(standing, _events(history, day), begin, until)
            # The figures hold until now: those of a day that is over are final if that is late enough.
            for item in day_items(DAYS, day, now, figures_text(figures)):
                history.merge(item)
            for item in day_items(STANDINGS, day, now, standing_text(standing), EVENTS_KEPT):
                history.merge(item)
    except Exception:
        for mark in late:
            _mark(history, date.fromisoformat(mark), now)
        raise
    return tuple(days)


def _days(history: EventHistory, late: list[str], now: datetime) -> list[date]:
    """Return the days to roll up: from the first that is late, missing or not settled, to today."""
    today = day_of(now)
    first = today
    for newest in history.read(DAYS, 1, newest_first=True):
        day, until = date.fromisoformat(newest.position[:10]), datetime.fromisoformat(newest.attributes[UNTIL])
        end = datetime.combine(day + ONE_DAY, time(), UTC)
        first = min(today, day + ONE_DAY if until >= end + SETTLED else day)
    oldest = today - timedelta(days=EVENTS_KEPT.days - 1)
    first = max(min([first, *map(date.fromisoformat, late)]), oldest)
    return [first + timedelta(days=number) for number in range((today - first).days + 1)]


def _standing(history: EventHistory, day: date) -> Standing:
    """Return what stood at the end of a day; nothing if that is not known."""
    items = history.read(STANDINGS, PAGE, after=day.isoformat(), before=(day + ONE_DAY).isoformat())
    texts = day_texts(items)
    return standing_of(texts[day][1]) if day in texts else Standing()


def _events(history: EventHistory, day: date) -> Iterator[RecordedEvent]:
    """Yield the events of a day."""
    after = ""
    while items := history.read(day_stream(day), PAGE, after=after):
        for item in items:
            yield event_of(item.attributes[EVENT])
        after = items[-1].position
