"""The course of a gang under a small model of a policy: it trains, something fails, the rules say what follows.

Which failures meet it: one that hits a program (a bug, a broken link) meets nothing while nothing trains; one that hits
a machine stays with it and shows as soon as the gang trains on it. A fault that was not cured comes back.
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


@dataclass(frozen=True, slots=True)
class FailureNoticed:
    """A failure that stops the training at `at_s`; `times` is how often it has done so, this time included."""

    failure: Failure
    at_s: float
    times: int

    @property
    def is_relapse(self) -> bool:
        """Whether it has been here before."""
        return self.times > 1


@dataclass(slots=True)
class PolicyOutcome:
    """What the policy made of it; the times are those of `Episode`, and never before the one above them."""

    detected_at: float
    stopped_at: float
    checked_at: float
    placed_at: float
    started_at: float
    training_at: float
    cured_at: float
    """From when on it does not come back; NEVER: it will."""
    moved_hosts: bool = False
    """Whether another machine stands in its place."""
    waited_for: frozenset[Cure] = frozenset()
    was_short: bool = False


@dataclass
class ActionCounts:
    """What the rules count along the way."""

    reboots: list[InstanceReboot] = field(default_factory=list)
    replacements: int = 0
    messages: int = 0
    called: int = 0

    def reboot(self, at_s: float, *, needed: bool) -> None:
        """An instance is rebooted."""
        self.reboots.append(InstanceReboot(at_s, needed))


class PolicyRules(Protocol):
    """One policy, as a function of what is felt."""

    def respond(self, felt: FailureNoticed, course: FailureTrace, tally: ActionCounts) -> PolicyOutcome:
        """What it does about it, and when the gang trains again."""


def shown_at(felt: FailureNoticed, course: FailureTrace) -> float:
    """When the first rank, or the host, has ended."""
    conditions = course.conditions
    waits = {Shows.EXIT: conditions.exit_s, Shows.HANG: conditions.hang_s, Shows.GONE: 0.0}
    return felt.at_s + waits[felt.failure.shows]


class PolicyModel:
    """One run of a gang under one set of rules."""

    def __init__(self, course: FailureTrace, rules: PolicyRules, spares: int = 0) -> None:
        self.course, self.rules, self.spares = course, rules, spares
        self.tally, self.episodes, self.unfelt = ActionCounts(), list[Episode](), 0
        self._sick: dict[int, Failure] = {}
        self._moved: set[int] = set()
        self._cured_at: dict[int, float] = {}
        self._times: Counter[int] = Counter()
        self._began = 0.0
        self._next = 0

    def run(self) -> PolicyRun:
        """From the first failure to the end of the course."""
        while (felt := self._feel()) is not None:
            answer = self.rules.respond(felt, self.course, self.tally)
            self.episodes.append(self._episode(felt, answer))
            self._settle(felt, answer)
        tally = self.tally
        return PolicyRun(
            tuple(self.episodes),
            tuple(tally.reboots),
            tally.replacements,
            tally.messages,
            tally.called,
            self.unfelt,
            self.spares,
        )

    def _feel(self) -> FailureNoticed | None:
        """What stops the training that began at `_began`, if anything does before the end of the run."""
        failures, end = self.course.failures, self.course.profile.seconds
        self._sick = {place: one for place, one in self._sick.items() if self._cured(one) > self._began}
        self._skip()
        ahead = [(at_s, one) for one in self._sick.values() if (at_s := self._returns_at(one)) < self._cured(one)]
        new = failures[self._next] if self._next < len(failures) else None
        if new is not None:
            ahead.append((new.at_s, new))
        at_s, failure = min(ahead, key=lambda one: (one[0], one[1].number), default=(end, None))
        if failure is None or at_s >= end:
            return None
        if failure is new:
            self._next += 1
        self._times[failure.number] += 1
        return FailureNoticed(failure, at_s, self._times[failure.number])

    def _skip(self) -> None:
        """Pass over what happened before the training began: it met nothing, or a machine that will show it."""
        failures = self.course.failures
        while self._next < len(failures):
            failure = failures[self._next]
            gone = failure.of_lemon and failure.place in self._moved
            if failure.at_s >= self._began and not gone:
                return
            self._next += 1
            if gone or not failure.of_machine or failure.place in self._sick:
                self.unfelt += 1
            else:
                self._sick[failure.place] = failure

    def _returns_at(self, failure: Failure) -> float:
        """At once, the first time that the gang trains on the machine; after a while if a restart seemed to help."""
        return self._began + (failure.relapse_s if self._times[failure.number] else 0.0)

    def _cured(self, failure: Failure) -> float:
        return self._cured_at.get(failure.number, NEVER)

    def _settle(self, felt: FailureNoticed, answer: PolicyOutcome) -> None:
        failure, place = felt.failure, felt.failure.place
        if answer.moved_hosts:
            self._moved.add(place)
        self._cured_at[failure.number] = min(answer.cured_at, self._cured(failure))
        if self._cured(failure) <= answer.training_at:
            self._sick.pop(place, None)
        else:
            self._sick[place] = failure
        self._began = answer.training_at

    def _episode(self, felt: FailureNoticed, answer: PolicyOutcome) -> Episode:
        in_time = answer.training_at < self.course.profile.seconds
        return Episode(
            felt.failure.number,
            felt.failure.cause,
            felt.at_s,
            shown_at(felt, self.course),
            answer.detected_at,
            answer.stopped_at,
            answer.checked_at,
            answer.placed_at,
            answer.started_at,
            answer.training_at if in_time else None,
            answer.waited_for,
            felt.is_relapse,
            answer.was_short,
        )
