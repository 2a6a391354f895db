"""Roll-up of the days: today again and again, yesterday once more, and each day for which events arrived late.

There is no schedule: an event that finds the figures old rolls them up. While no event comes, nothing changes but the
time, and a reader goes on from what stood at the end of the last roll-up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
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
from gpu_recovery.core.published_events import utc_text
from gpu_recovery.ports.event_history import EventHistory

DAYS_MAX = 14
"""Days that one run rolls up at most. The next run goes on."""
EVERY = timedelta(minutes=15)
"""How often the days are rolled up at most. A reader adds the time since then."""
ARRIVAL = timedelta(minutes=1)
"""Time in which an event usually arrives. Later events are not rolled up yet: a reader adds them when it reads."""
SETTLED = timedelta(hours=1)
"""Time after the end of a day at which its events have arrived. Later events mark the day as late."""
PAGE = 1_000
"""Events that are read at once."""
ONE_DAY = timedelta(days=1)
CLAIMS, CLAIM = "days#claim", timedelta(seconds=90)
"""Stream of the claim of the roll-up, and how long a claim lasts: longer than the function may run."""
DAY_S = 20
"""Seconds that must be left before a day is rolled up."""
MARK = "late"
"""Attribute of an item of LATE_DAYS."""


def is_due(history: EventHistory, now: datetime) -> bool:
    """Return whether the days were not rolled up for EVERY, or today was not rolled up at all."""
    for newest in history.read(DAYS, 1, newest_first=True):
        is_today = newest.position[:10] >= day_of(now).isoformat()
        return not is_today or datetime.fromisoformat(newest.attributes[UNTIL]) <= now - EVERY
    return True


def mark_late(history: EventHistory, event: RecordedEvent, now: datetime) -> None:
    """Mark the day of an event as late if the day is over, so that it is rolled up again with the days after it."""
    if day_of(event.at) < day_of(now):
        _mark(history, day_of(event.at), now, event.event_id)


def _mark(history: EventHistory, day: date, now: datetime, reason: str) -> Mapping[str, str] | None:
    """Mark a day with a text that no other mark has. Return the attributes of the mark."""
    text = f"{utc_text(now)}#{reason}"
    return history.merge(HistoryItem(LATE_DAYS, day.isoformat(), {MARK: text}, now + EVENTS_KEPT))


def roll_up_if_due(history: EventHistory, now: datetime, left_s: Callable[[], float]) -> tuple[date, ...]:
    """Roll up the days if they were not for EVERY. Return the days that were rolled up.

    Only the recorder that claims the roll-up does it: two of them would mix the parts of a day's text.

    Args:
        history: the event history.
        now: the present time.
        left_s: returns the seconds that the function may still run.
    """

    def has_time() -> bool:
        return left_s() > DAY_S

    until = now - ARRIVAL
    if has_time() and is_due(history, until) and history.claim(CLAIMS, "roll-up", now, now + CLAIM):
        return roll_up_days(history, until, has_time)
    return ()


def roll_up_days(history: EventHistory, now: datetime, has_time: Callable[[], bool] = lambda: True) -> tuple[date, ...]:
    """Roll up every day whose figures are missing or may have changed. Return the days, in order.

    The end of the function at any moment loses no day: the mark of a day is removed once its figures are written and
    the day after it is marked, and only if no event has marked the day again in the meantime.

    Args:
        history: the event history.
        now: time until which they are rolled up.
        has_time: returns whether there is time for one more day. The next run goes on with the days that are left.
    """
    marks = {date.fromisoformat(item.position): item.attributes for item in history.read(LATE_DAYS, DAYS_MAX)}
    due = _days(history, marks, now)
    for day, mark in marks.items():
        if day < due[0]:  # its events are no longer kept
            history.remove(LATE_DAYS, day.isoformat(), mark)
    standing = _standing(history, due[0] - ONE_DAY)
    mark_of_day, done = marks.get(due[0]), list[date]()
    for day in due[:DAYS_MAX]:
        if not has_time():
            break
        standing = _roll_up_day(history, day, standing, now)
        next_mark = _mark(history, day + ONE_DAY, now, "the day before") if day < due[-1] else None
        if mark_of_day:
            history.remove(LATE_DAYS, day.isoformat(), mark_of_day)
        mark_of_day = next_mark
        done.append(day)
    return tuple(done)


def _roll_up_day(history: EventHistory, day: date, standing: Standing, now: datetime) -> Standing:
    """Write the figures of a day. Return what stood at its end, or stands now if the day is not over."""
    begin = datetime.combine(day, time(), UTC)
    figures, after = roll_up(standing, _events(history, day), begin, min(begin + ONE_DAY, now))
    # The figures hold until now: those of a day that is over are final if that is late enough.
    items = day_items(STANDINGS, day, now, standing_text(after), EVENTS_KEPT)
    for item in (*items, *day_items(DAYS, day, now, figures_text(figures))):
        history.merge(item)
    return after


def _days(history: EventHistory, late: Iterable[date], now: datetime) -> list[date]:
    """Return the days to roll up: from the first that is late, missing or not settled, to today."""
    today = day_of(now)
    first = today
    for newest in history.read(DAYS, 1, newest_first=True):
        day, until = date.fromisoformat(newest.position[:10]), datetime.fromisoformat(newest.attributes[UNTIL])
        end = datetime.combine(day + ONE_DAY, time(), UTC)
        first = min(today, day + ONE_DAY if until >= end + SETTLED else day)
    oldest = today - timedelta(days=EVENTS_KEPT.days - 1)
    first = max(min([first, *late]), oldest)
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
