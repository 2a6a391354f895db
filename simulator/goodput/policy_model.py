"""Model of a gang under a set of policy rules: the gang trains, a failure stops it, the rules give the next steps.

A fault of a program (a bug, a broken link) has no effect while nothing trains. A fault of an instance stays with the
instance and becomes visible as soon as the gang trains on it. An uncured fault returns.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Protocol

from simulator.goodput.assumptions import Cure, Shows
from simulator.goodput.failure_trace import Failure, FailureTrace
from simulator.goodput.policy import Episode, InstanceReboot, PolicyRun

NEVER = math.inf
"""Time of a cure that does not happen."""


@dataclass(frozen=True, slots=True)
class FailureNoticed:
    """A failure that stops the training at `at_s`.

    `times` is how often the failure has stopped the training, this time included.
    """

    failure: Failure
    at_s: float
    times: int

    @property
    def is_relapse(self) -> bool:
        """Whether the failure has stopped the training before."""
        return self.times > 1


@dataclass(slots=True)
class PolicyOutcome:
    """Result of a policy for one failure. The times are those of `Episode`, each at or after the time above it."""

    detected_at: float
    stopped_at: float
    checked_at: float
    placed_at: float
    started_at: float
    training_at: float
    cured_at: float
    """Time from which the failure does not return; NEVER for an uncured failure."""
    moved_hosts: bool = False
    """Whether another instance takes the place of the faulty instance."""
    waited_for: frozenset[Cure] = frozenset()
    was_short: bool = False


@dataclass
class ActionCounts:
    """Counts of the actions that the rules take."""

    reboots: list[InstanceReboot] = field(default_factory=list)
    replacements: int = 0
    messages: int = 0
    called: int = 0

    def reboot(self, at_s: float, *, needed: bool) -> None:
        """Record a reboot at `at_s`. `needed` is whether a reboot cures the instance."""
        self.reboots.append(InstanceReboot(at_s, needed))


class PolicyRules(Protocol):
    """Rules of one policy, as a function of the failure that stops the training."""

    def respond(self, noticed: FailureNoticed, trace: FailureTrace, counts: ActionCounts) -> PolicyOutcome:
        """Respond to a failure and return when the gang trains again.

        Args:
            noticed: the failure and its time.
            trace: the failure trace of the run.
            counts: where the rules record reboots, replacements, messages and calls.
        """


def shown_at(noticed: FailureNoticed, trace: FailureTrace) -> float:
    """Time at which the first rank, or the host, has ended."""
    conditions = trace.conditions
    delays = {Shows.EXIT: conditions.exit_s, Shows.HANG: conditions.hang_s, Shows.GONE: 0.0}
    return noticed.at_s + delays[noticed.failure.shows]


class PolicyModel:
    """One run of a gang under one set of rules."""

    def __init__(self, trace: FailureTrace, rules: PolicyRules, spares: int = 0) -> None:
        self.trace, self.rules, self.spares = trace, rules, spares
        self.counts, self.episodes, self.unnoticed = ActionCounts(), list[Episode](), 0
        self._faulty: dict[int, Failure] = {}
        self._moved: set[int] = set()
        self._cured_at: dict[int, float] = {}
        self._times: Counter[int] = Counter()
        self._began = 0.0
        self._next = 0

    def run(self) -> PolicyRun:
        """Go through the trace, from the first failure to the end of the run."""
        while (noticed := self._next_interruption()) is not None:
            outcome = self.rules.respond(noticed, self.trace, self.counts)
            self.episodes.append(self._episode(noticed, outcome))
            self._apply(noticed, outcome)
        counts = self.counts
        return PolicyRun(
            tuple(self.episodes),
            tuple(counts.reboots),
            counts.replacements,
            counts.messages,
            counts.called,
            self.unnoticed,
            self.spares,
        )

    def _next_interruption(self) -> FailureNoticed | None:
        """Return the failure that stops the training that began at `_began`; None if the run ends before."""
        failures, end = self.trace.failures, self.trace.profile.seconds
        self._faulty = {
            place: failure for place, failure in self._faulty.items() if self._cure_time(failure) > self._began
        }
        self._skip_unnoticed()
        candidates = [
            (at_s, failure)
            for failure in self._faulty.values()
            if (at_s := self._returns_at(failure)) < self._cure_time(failure)
        ]
        new = failures[self._next] if self._next < len(failures) else None
        if new is not None:
            candidates.append((new.at_s, new))
        at_s, failure = min(candidates, key=lambda candidate: (candidate[0], candidate[1].number), default=(end, None))
        if failure is None or at_s >= end:
            return None
        if failure is new:
            self._next += 1
        self._times[failure.number] += 1
        return FailureNoticed(failure, at_s, self._times[failure.number])

    def _skip_unnoticed(self) -> None:
        """Pass over failures before the training began. Each had no effect, or made an instance faulty for later."""
        failures = self.trace.failures
        while self._next < len(failures):
            failure = failures[self._next]
            gone = failure.of_lemon and failure.place in self._moved
            if failure.at_s >= self._began and not gone:
                return
            self._next += 1
            if gone or not failure.is_instance_fault or failure.place in self._faulty:
                self.unnoticed += 1
            else:
                self._faulty[failure.place] = failure

    def _returns_at(self, failure: Failure) -> float:
        """Time of the failure's next interruption.

        The first interruption follows at once when the gang trains on the instance. A later interruption follows after
        `relapse_s`, since a restart seemed to help.
        """
        return self._began + (failure.relapse_s if self._times[failure.number] else 0.0)

    def _cure_time(self, failure: Failure) -> float:
        ends = NEVER if failure.until_s is None else failure.until_s
        return min(self._cured_at.get(failure.number, NEVER), ends)

    def _apply(self, noticed: FailureNoticed, outcome: PolicyOutcome) -> None:
        """Record the cure of the failure and begin the next training."""
        failure, place = noticed.failure, noticed.failure.place
        if outcome.moved_hosts:
            self._moved.add(place)
        self._cured_at[failure.number] = min(outcome.cured_at, self._cure_time(failure))
        if self._cure_time(failure) <= outcome.training_at:
            self._faulty.pop(place, None)
        else:
            self._faulty[place] = failure
        self._began = outcome.training_at

    def _episode(self, noticed: FailureNoticed, outcome: PolicyOutcome) -> Episode:
        in_time = outcome.training_at < self.trace.profile.seconds
        return Episode(
            noticed.failure.number,
            noticed.failure.cause,
            noticed.at_s,
            shown_at(noticed, self.trace),
            outcome.detected_at,
            outcome.stopped_at,
            outcome.checked_at,
            outcome.placed_at,
            outcome.started_at,
            outcome.training_at if in_time else None,
            outcome.waited_for,
            noticed.is_relapse,
            outcome.was_short,
        )
