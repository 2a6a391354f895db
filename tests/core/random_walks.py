"""Random runs of a machine: one record, told events fresh, again, and about other attempts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from gpu_recovery.core import events
from gpu_recovery.core.policy import RecoveryPolicy
from gpu_recovery.core.state_machine import Decision, EventOutcome
from hypothesis import strategies as st

from tests.core.build import NOW, tell

FRESH, AGAIN, ELSEWHERE = "fresh", "again", "about another attempt"
STEP = st.tuples(st.sampled_from((FRESH, FRESH, FRESH, AGAIN, ELSEWHERE)), st.integers(0, 9_999), st.integers(1, 900))
STEPS = st.lists(STEP, min_size=1, max_size=40)
Step = tuple[str, int, int]


@dataclass(frozen=True)
class Taken:
    """One step of a run: what the record was, what it was told, what was decided and when."""

    how: str
    before: Any
    event: Any
    decision: Decision[Any]
    now: datetime


@dataclass
class Run:
    """A record on its way. `moved_by` are the events that have moved it and may be delivered again."""

    record: Any
    machine: Any
    policy: RecoveryPolicy
    now: datetime = NOW
    taken: list[Taken] = field(default_factory=list)
    moved_by: list[Any] = field(default_factory=list)

    def tell(self, how: str, event: Any) -> None:
        """Tell the record one event and go on from what was decided."""
        decision = tell(self.record, event, self.policy, self.now)
        self.taken.append(Taken(how, self.record, event, decision, self.now))
        if decision.outcome is not EventOutcome.APPLIED:
            return
        self.record = decision.record
        # A look is an answer we fetch ourselves at its time: nobody delivers it a second time.
        if not getattr(event, "looked", False):
            self.moved_by.append(event)


def run_of(
    machine: Any, first: Any, anything: Callable[[Any, datetime], list[Any]], policy: RecoveryPolicy, steps: list[Step]
) -> Run:
    """The run that `steps` make of the record `first`."""
    run = Run(first, machine, policy)
    for how, pick, seconds in steps:
        run.now += timedelta(seconds=seconds)
        if how == AGAIN:
            if run.moved_by:
                run.tell(how, run.moved_by[pick % len(run.moved_by)])
            continue
        told = anything(run.record, run.now)
        at, event = told[pick % len(told)]
        if how == ELSEWHERE and isinstance(event, events.JobEvent):
            run.tell(how, replace(event, attempt=max(0, event.attempt - 1) if pick % 2 else event.attempt + 1))
            continue
        run.now = at
        run.tell(FRESH, event)
    return run
