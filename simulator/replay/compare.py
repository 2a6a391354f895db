"""Comparison of decisions: whether a replay decided as recorded, and the first difference if not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpu_recovery.core.event_history.recorded_event import EventKind, RecordedEvent

from simulator.replay.course import Course, Interruption


@dataclass(frozen=True)
class DecisionLine:
    """One decision, without its time: what a replay must repeat.

    record: `job`, or the id of the instance.
    result: the outcome of the check that was decided about, or the sure diagnosis.
    reason: the sentence of the decision, for people. It is not compared: it may name seconds and percent.
    """

    record: str
    before: str
    after: str
    result: str
    reason: str

    @property
    def compared(self) -> tuple[str, ...]:
        """What is compared."""
        return self.record, self.before, self.after, self.result

    def __str__(self) -> str:
        return f"{self.record} {self.before or 'new'} -> {self.after}: {self.reason}"


@dataclass(frozen=True)
class Difference:
    """The first decision that differs: `first` in the one course, `second` in the other; None: there is none."""

    first: DecisionLine | None
    second: DecisionLine | None

    def sentence(self, of_first: str, of_second: str) -> str:
        """Return the difference as a sentence, with names for the two courses."""
        told = [
            f"{name}: {line if line is not None else 'no such decision'}"
            for name, line in ((of_first, self.first), (of_second, self.second))
        ]
        return "; ".join(told)


def decisions(interruption: Interruption) -> dict[str, list[DecisionLine]]:
    """Return the decisions of an interruption in order, by record: `job`, and each instance."""
    found = {"job": [_line("job", event) for event in interruption.events if event.kind is EventKind.JOB]}
    for name, events in sorted(interruption.about.items()):
        found[name] = [_line(name, event) for event in events]
    return found


def _line(record: str, event: RecordedEvent) -> DecisionLine:
    facts = event.replay or {}
    result = str(facts.get("outcome", ""))
    if event.finding is not None and event.finding.decided:
        result = f"{event.finding.cause} {event.finding.remedy} {','.join(event.finding.instances)}"
    return DecisionLine(record, event.before, event.after, result, event.reason)


def first_difference(one: Interruption, other: Interruption) -> Difference | None:
    """Return the first decision in which two interruptions differ, the job first; None if all are the same."""
    firsts, seconds = decisions(one), decisions(other)
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
            return Difference(first, second)
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
