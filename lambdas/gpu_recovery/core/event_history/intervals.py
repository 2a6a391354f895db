"""Intervals: which status a record had from when to when, from its events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from gpu_recovery.core.event_history.recorded_event import RecordedEvent
from gpu_recovery.core.lazy_dataclass import frozen_dataclass


@frozen_dataclass()
class Interval:
    """A status of a record, from `since` to `until`; "" while there was no record.

    `ended_by` is the event that ended it. None: it lasts longer, or that event is missing.
    """

    status: str
    since: datetime
    until: datetime
    ended_by: RecordedEvent | None

    @property
    def hours(self) -> float:
        """Length in hours."""
        return (self.until - self.since).total_seconds() / 3_600


def intervals_of(moves: Iterable[RecordedEvent], status: str, since: datetime, until: datetime) -> Iterator[Interval]:
    """Yield the statuses of one record between two times. Each event ends one of them, which may have no length.

    If an event is missing, the next event tells which status the record had before, and since when.

    Args:
        moves: changes of status of the record between both times, in the order of their versions.
        status: status at `since`; "" if it is not known, or if there was no record.
        since: start of the first interval.
        until: end of the last interval.
    """
    at = since
    for event in moves:
        end = min(max(event.at, at), until)
        if event.before != status:
            began = end if event.since is None else min(max(event.since, at), end)
            if status and began > at:
                yield Interval(status, at, began, None)
            status, at = event.before, began
        yield Interval(status, at, end, event)
        status, at = event.after, end
    if status and until > at:
        yield Interval(status, at, until, None)
