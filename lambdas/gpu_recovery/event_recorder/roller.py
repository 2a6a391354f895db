"""Roll-up of the days: today again and again, yesterday once more, and each day for which events arrived late.

A day with many events is rolled up in pieces. After each piece the progress is saved, so that the next run goes on
there, however large the day is. The pieces give the same figures as the whole day at once.

There is no schedule: an event that finds the figures old rolls them up. While no event comes, nothing changes but the
time, and a reader goes on from what stood at the end of the last roll-up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta

from gpu_recovery.core.event_history.day_codec import (
    DAYS,
    LATE_DAYS,
    PROGRESS,
    STANDINGS,
    UNTIL,
    DayProgress,
    day_items,
    day_texts,
    figures_text,
    progress_of,
    progress_text,
    standing_digest,
    standing_of,
    standing_text,
)
from gpu_recovery.core.event_history.recorded_event import RecordedEvent, RecordedEventUnreadable, event_of
from gpu_recovery.core.event_history.roll_up import Standing, add_events, begin_day, end_day, sum_of
from gpu_recovery.core.event_history.streams import (
    EVENT,
    EVENTS_KEPT,
    HistoryItem,
    StoredItem,
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
PIECE_PAGES = 20
"""Pages of events that are rolled up at once. A function with 0.3 of a processor takes some 10 s for them."""
ONE_DAY = timedelta(days=1)
PROGRESS_KEPT = timedelta(days=2)
CLAIMS, CLAIM = "days#claim", timedelta(seconds=90)
"""Stream of the claim of the roll-up, and how long a claim lasts: longer than the function may run."""
CLAIM_NAME = "roll-up"
DAY_S = 20
"""Seconds that must be left before a day, or a further piece of a day, is rolled up."""
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
    if has_time() and is_due(history, until) and history.claim(CLAIMS, CLAIM_NAME, now, now + CLAIM):
        days = roll_up_days(history, until, has_time)
        if not has_time():  # the next event goes on, before the claim ends
            history.remove(CLAIMS, CLAIM_NAME)
        return days
    return ()


def roll_up_days(history: EventHistory, now: datetime, has_time: Callable[[], bool] = lambda: True) -> tuple[date, ...]:
    """Roll up every day whose figures are missing or may have changed. Return the days, in order.

    The end of the function at any moment loses no day: the mark of a day is removed once its figures are written and
    the day after it is marked, and only if no event has marked the day again in the meantime.

    Args:
        history: the event history.
        now: time until which they are rolled up.
        has_time: returns whether there is time for one more day or piece. The next run goes on with what is left.
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
        rolled_up = _roll_up_day(history, day, standing, now, (mark_of_day or {}).get(MARK, ""), has_time)
        if rolled_up is None:
            break
        standing, mark_at_begin = rolled_up
        next_mark = _mark(history, day + ONE_DAY, now, "the day before") if day < due[-1] else None
        if mark_at_begin:
            history.remove(LATE_DAYS, day.isoformat(), {MARK: mark_at_begin})
        mark_of_day = next_mark
        done.append(day)
    return tuple(done)


def _roll_up_day(
    history: EventHistory, day: date, standing: Standing, now: datetime, mark: str, has_time: Callable[[], bool]
) -> tuple[Standing, str] | None:
    """Write the figures of a day, piece by piece. None if the time was over before its last piece.

    Returns:
        What stood at its end, or stands now if the day is not over. And the mark of the day when its roll-up began: a
        later mark is of an event that the first pieces may miss.
    """
    begin = datetime.combine(day, time(), UTC)
    end, begun_with = min(begin + ONE_DAY, now), standing_digest(standing)
    parts = _parts(history, PROGRESS, day)
    saved = _progress(parts, day)
    progress = DayProgress(begin, begin_day(standing, begin), {}, begun_with, mark, now)
    # An event that arrives before the end of its day marks nothing. The final figures are of a roll-up after `settled`.
    settled = begin + ONE_DAY + SETTLED
    if (
        saved is not None
        and saved.begun_with == begun_with
        and saved.at <= end
        and (saved.begun_at >= settled or now < settled)
    ):
        progress = saved
    else:
        _remove(history, parts)  # the first piece may end at the same time as a saved piece
    while True:
        events, until = _piece(history, day, progress.at, end)
        figures, part = add_events(progress.part, events, progress.at, until)
        progress = replace(progress, at=until, part=part, figures=sum_of(progress.figures, figures))
        if until >= end:
            break
        # The time of the parts is the end of the piece, so that the parts of two pieces are not joined.
        for item in day_items(PROGRESS, day, until, progress_text(progress), now - until + PROGRESS_KEPT):
            history.merge(item)
        saved = progress
        if not has_time():
            return None
    figures, after = end_day(progress.part, end)
    # The figures hold until now: those of a day that is over are final if that is late enough.
    items = day_items(STANDINGS, day, now, standing_text(after), EVENTS_KEPT)
    for item in (*items, *day_items(DAYS, day, now, figures_text(sum_of(progress.figures, figures)))):
        history.merge(item)
    if saved is not None:
        _remove(history, _parts(history, PROGRESS, day))
    return after, progress.mark


def _piece(history: EventHistory, day: date, since: datetime, end: datetime) -> tuple[list[RecordedEvent], datetime]:
    """Return the events of a day from a time on, at most PIECE_PAGES pages, and the time before which they are all.

    Events of one moment are in one piece, so a piece is longer if it would end in its first moment.
    """
    events, after, pages = list[RecordedEvent](), utc_text(since), 0
    while items := history.read(day_stream(day), PAGE, after=after):
        events += [event_of(item.attributes[EVENT]) for item in items]
        after, pages = items[-1].position, pages + 1
        last = events[-1].at
        if pages >= PIECE_PAGES and since < last < end:
            return [event for event in events if event.at < last], last
        if last >= end:
            break
    return events, end


def _parts(history: EventHistory, stream: str, day: date) -> tuple[StoredItem, ...]:
    return history.read(stream, PAGE, after=day.isoformat(), before=(day + ONE_DAY).isoformat())


def _progress(parts: Iterable[StoredItem], day: date) -> DayProgress | None:
    """Return how far a day is rolled up; None if its roll-up has not begun, or was saved by another release."""
    texts = day_texts(parts)
    try:
        return progress_of(texts[day][1]) if day in texts else None
    except RecordedEventUnreadable:
        return None


def _remove(history: EventHistory, parts: Iterable[StoredItem]) -> None:
    for item in parts:
        history.remove(PROGRESS, item.position)


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
    items = _parts(history, STANDINGS, day)
    texts = day_texts(items)
    return standing_of(texts[day][1]) if day in texts else Standing()
