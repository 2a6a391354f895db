"""Comparison of decisions: whether a replay decided as recorded, and the first difference if not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpu_recovery.core.event_history.recorded_event import EventKind, RecordedEvent

from simulator.replay.course import BY_CHECKS, Course, Interruption


@dataclass(frozen=True)
class DecisionLine:
    """One decision, without its time: what a replay must repeat.

    record: `job`, or the name of the instance in the comparison.
    shown:  `job`, or the id of the instance.
    result: the outcome of the check that was decided about, or the sure diagnosis.
    reason: the sentence of the decision, for people. It is not compared: it may name seconds and percent.
    """

    record: str
    shown: str
    before: str
    after: str
    result: str
    reason: str

    @property
    def compared(self) -> tuple[str, ...]:
        """What is compared."""
        return self.record, self.before, self.after, self.result

    def __str__(self) -> str:
        return f"{self.shown} {self.before or 'new'} -> {self.after}: {self.reason}"


@dataclass(frozen=True)
class Difference:
    """The first decision that differs: `first` in the one course, `second` in the other; "" for no such decision."""

    first: str
    second: str


def decisions(
    interruption: Interruption, *, by_rank: bool, renamed: Mapping[str, str] | None = None
) -> dict[str, list[DecisionLine]]:
    """Return the decisions of an interruption in order, by record: `job`, and each instance.

    Args:
        interruption: the interruption.
        by_rank: name an instance by its rank, and not by its id. Under another policy another instance may have a rank.
        renamed: other names of instances, without `by_rank`.
    """
    if renamed and not by_rank:
        return _decisions(interruption, renamed)
    names = {name: f"rank {rank}" for rank, name in enumerate(interruption.gang)} if by_rank else {}
    others = sorted(name for name in interruption.about if name not in names)
    names |= {name: f"another instance {number}" for number, name in enumerate(others)} if by_rank else {}
    return _decisions(interruption, names)


def _decisions(interruption: Interruption, names: Mapping[str, str]) -> dict[str, list[DecisionLine]]:
    found = {"job": [_line("job", event, names) for event in interruption.events if event.kind is EventKind.JOB]}
    for name, events in sorted(interruption.about.items()):
        found[names.get(name, name)] = [_line(name, event, names) for event in events]
    return found


def _line(record: str, event: RecordedEvent, names: Mapping[str, str]) -> DecisionLine:
    result = str((event.replay or {}).get("outcome", ""))
    if event.finding is not None and event.finding.decided:
        where = ",".join(names.get(name, name) for name in event.finding.instances)
        result = f"{event.finding.cause} {event.finding.remedy} {where}"
        if (event.replay or {}).get("event") in BY_CHECKS:
            result = where  # the checks decided; the name of the cause comes from logs, which are not recorded
    return DecisionLine(names.get(record, record), record, event.before, event.after, result, event.reason)


def renamed(one: Course, other: Course) -> dict[str, str]:
    """Return the instances of `one` by those of `other` that had the same rank at the start, where they differ.

    The scheduler may give the ranks of a first attempt to the same instances in another order.
    """
    if set(one.first) != set(other.first) or not all(one.first):
        return {}
    return {name: same for name, same in zip(other.first, one.first, strict=True) if name != same}


def first_difference(
    one: Interruption, other: Interruption, *, by_rank: bool = False, renamed: Mapping[str, str] | None = None
) -> Difference | None:
    """Return the first decision in which two interruptions differ, the job first; None if all are the same.

    Args:
        one: an interruption.
        other: the same interruption in another run.
        by_rank: name instances by their ranks.
        renamed: the names of the instances of `other` in `one`, where they differ.
    """
    firsts, seconds = decisions(one, by_rank=by_rank), decisions(other, by_rank=by_rank, renamed=renamed)
    for record in dict.fromkeys([*firsts, *seconds]):
        difference = _first(firsts.get(record, ()), seconds.get(record, ()))
        if difference is not None:
            return difference
    return None


def _first(one: Sequence[DecisionLine], other: Sequence[DecisionLine]) -> Difference | None:
    for index in range(max(len(one), len(other))):
        first = one[index] if index < len(one) else None
        second = other[index] if index < len(other) else None
        if first is None or second is None or first.compared != second.compared:
            return Difference("" if first is None else str(first), "" if second is None else str(second))
    return None


def matched(one: Course, other: Course, within_s: float) -> list[tuple[Interruption | None, Interruption | None]]:
    """Return the pairs of interruptions that begin at the same time since the begin of the course.

    An interruption without a partner is paired with None. No interruption is left out.

    Args:
        one: a course.
        other: another course of the same failures.
        within_s: seconds by which the begin of two interruptions of a pair may differ.
    """
    left = list(other.interruptions)
    pairs: list[tuple[Interruption | None, Interruption | None]] = []
    for interruption in one.interruptions:
        at_s = _since_begin(one, interruption)
        near = min(left, key=lambda each: abs(_since_begin(other, each) - at_s), default=None)
        if near is not None and abs(_since_begin(other, near) - at_s) <= within_s:
            left.remove(near)
            pairs.append((interruption, near))
        else:
            pairs.append((interruption, None))
    return [*pairs, *((None, each) for each in left)]


def _since_begin(course: Course, interruption: Interruption) -> float:
    return (interruption.at - course.began_at).total_seconds() if course.began_at is not None else 0.0
