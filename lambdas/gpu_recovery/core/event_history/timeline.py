"""Timeline of a job: the phases of each attempt, and its ranks grouped by equal course.

No rank has times of its own (`core/attempt.py`): its phases are those of the attempt. What distinguishes a rank is the
first failure, and what happened to its instance. Ranks whose instances went through the same statuses are one row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from gpu_recovery.core.event_history.incidents import Phase
from gpu_recovery.core.event_history.recorded_event import EventKind, RecordedEvent
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.job.record import TERMINAL
from gpu_recovery.core.lazy_dataclass import frozen_dataclass
from gpu_recovery.core.state_machine import HistoryEntry
from gpu_recovery.core.task import RankFailure

ROWS_MAX = 100
"""Rows of an attempt. Further ranks are one row without marks."""
BLAMED_MAX = 8
"""Instances of an attempt at most whose own events are read."""
NAMED_MAX = 4
"""Instances that a row names at most."""


@frozen_dataclass()
class Mark:
    """A status of the instances of a row: entered by the first at `since`, left by the last at `until`."""

    status: str
    since: datetime
    until: datetime | None


@frozen_dataclass()
class RankRow:
    """Ranks of equal course.

    ranks:     the ranks, such as `0, 2-2999`.
    number:    how many ranks there are.
    instances: their instances, at most NAMED_MAX.
    has_first_failure: whether the row is the first rank that failed.
    marks:     checks and repairs of the instances.
    """

    ranks: str
    number: int
    instances: tuple[str, ...]
    has_first_failure: bool
    marks: tuple[Mark, ...]


@frozen_dataclass()
class Moment:
    """A change of status of a job."""

    at: datetime
    before: str
    after: str
    attempt: int
    reason: str


def moments_of(events: Iterable[RecordedEvent], history: Iterable[HistoryEntry]) -> tuple[Moment, ...]:
    """Return the changes of status of a job, from its events and from the history in its record.

    The record keeps its first and its latest decisions; events reach back for the time that they are kept.
    """
    found: dict[tuple[datetime, str], Moment] = {}
    for entry in history:
        if entry.before != entry.after:
            found[entry.at, entry.after] = Moment(entry.at, entry.before, entry.after, entry.attempt, entry.reason)
    for event in events:
        if event.kind is EventKind.JOB:
            moment = Moment(event.at, event.before, event.after, event.attempt, event.reason)
            found.setdefault((event.at, event.after), moment)
    return tuple(sorted(found.values(), key=lambda moment: (moment.at, moment.attempt)))


def attempt_phases(moments: Sequence[Moment]) -> dict[int, tuple[Phase, ...]]:
    """Return the phases of each attempt in order; attempt 0 is the time before the first.

    A wait for the next attempt belongs to the attempt before it. A phase that lasts has no end.
    """
    phases: dict[int, list[Phase]] = {}
    for moment, following in zip(moments, (*moments[1:], None), strict=False):
        until = None if following is None else following.at
        if following is None and moment.after in _ENDED:
            until = moment.at
        phases.setdefault(moment.attempt, []).append(Phase(moment.after, moment.attempt, moment.at, until))
    return {attempt: tuple(course) for attempt, course in sorted(phases.items())}


def blamed_instances(events: Iterable[RecordedEvent], failure: RankFailure | None) -> tuple[str, ...]:
    """Return the instances of an attempt that its diagnosis or its first failure names, at most BLAMED_MAX.

    Args:
        events: events of the attempt.
        failure: the first failure of the attempt; None if none is known.
    """
    names = [] if failure is None else [failure.instance_id]
    for event in events:
        names += [] if event.failure is None else [event.failure.instance_id]
        names += [] if event.finding is None else event.finding.instances
    return tuple(dict.fromkeys(name for name in names if name))[:BLAMED_MAX]


_ENDED = frozenset(status.value for status in TERMINAL)


def rank_rows(
    instances: Sequence[str], events: Iterable[RecordedEvent], failed_rank: int | None
) -> tuple[RankRow, ...]:
    """Return the rows of an attempt: the first failure first, then those of the fewest ranks.

    Args:
        instances: the instance of each rank, "" for an unknown instance.
        events: events of the instances while they were checked or repaired for this attempt.
        failed_rank: the first rank that failed; None if none did.
    """
    courses: dict[str, list[RecordedEvent]] = {}
    distinct = {event.event_id: event for event in events}
    for event in sorted(distinct.values(), key=lambda event: event.version):
        if event.kind is EventKind.INSTANCE:
            courses.setdefault(event.instance_id, []).append(event)
    groups: dict[tuple[bool, tuple[str, ...]], list[int]] = {}
    for rank, name in enumerate(instances):
        statuses = tuple(event.after for event in courses.get(name, ()))
        groups.setdefault((rank == failed_rank, statuses), []).append(rank)
    ordered = sorted(groups.items(), key=lambda group: (not group[0][0], len(group[1]), group[1][0]))
    rows = [
        _row(ranks, instances, [courses.get(instances[rank], []) for rank in ranks], is_first)
        for (is_first, _), ranks in ordered[:ROWS_MAX]
    ]
    others = sorted(rank for _, ranks in ordered[ROWS_MAX:] for rank in ranks)
    return (*rows, _row(others, instances, [], False)) if others else tuple(rows)


def _as_ranges(ranks: Sequence[int]) -> str:
    """Return ranks in ascending order as a text, such as `0,2-2999`."""
    parts: list[list[int]] = []
    for rank in ranks:
        if parts and rank == parts[-1][-1] + 1:
            parts[-1] = [parts[-1][0], rank]
        else:
            parts.append([rank])
    return ",".join("-".join(map(str, part)) for part in parts)


def _row(
    ranks: list[int], instances: Sequence[str], courses: Sequence[Sequence[RecordedEvent]], is_first: bool
) -> RankRow:
    marks = []
    for place in range(len(courses[0]) if courses else 0):
        status = courses[0][place].after
        if status in (InstanceStatus.AVAILABLE, InstanceStatus.GONE):
            continue
        ends = [course[place + 1].at for course in courses if place + 1 < len(course)]
        since = min(course[place].at for course in courses)
        marks.append(Mark(status, since, max(ends) if ends else None))
    named = tuple(name for name in (instances[rank] for rank in ranks[:NAMED_MAX]) if name)
    return RankRow(_as_ranges(ranks), len(ranks), named, is_first, tuple(marks))
