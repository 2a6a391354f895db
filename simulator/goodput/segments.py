"""A course cut into legs that are gone through side by side: weeks of thousands of machines take a core long.

A leg begins as a whole course does, with a gang that trains on a new fleet: what was sick is well, every spare is
there, bad machines that were taken out are back, and nothing is remembered. So a run in legs is not quite the run.

A cut is in calm, close to where each leg would have as many failures: of those within a twentieth of a leg, at least
one to either side, before the one that the longest calm precedes. A gang that is not back at work at the cut is an
error: it would be taken to train.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from simulator.goodput.failure_trace import FailureTrace
from simulator.goodput.policy import PolicyRun

LEFT_S = 60.0
"""Between a cut and the failure that follows it."""
LEEWAY = 0.05
"""How far from its place a cut may be, as a share of a leg's failures: further off one leg would take longer."""
FEWEST = 4
"""Failures in a leg."""


class SegmentsDoNotFit(ValueError):
    """The course cannot be gone through in so many legs; the message says why."""


def segments_of(course: FailureTrace, number: int) -> tuple[FailureTrace, ...]:
    """The course in `number` legs, in order, with about as many failures each. SegmentsDoNotFit if it has too few."""
    if number == 1:
        return (course,)
    per_leg = len(course.failures) / number
    if per_leg < FEWEST:
        raise SegmentsDoNotFit(f"{len(course.failures)} failures are too few for {number} legs")
    leeway = max(1, round(LEEWAY * per_leg))
    cuts = [_cut(course, round(leg * per_leg), leeway) for leg in range(1, number)]
    bounds = [course.begins_s, *cuts, course.ends_s]
    return tuple(replace(course, segment=leg) for leg in pairwise(bounds))


def _cut(course: FailureTrace, near: int, leeway: int) -> float:
    """Shortly before one of the failures around the one in the place `near`, at most `leeway` places off."""
    times = [one.at_s for one in course.failures]
    after = max(range(near - leeway, near + leeway + 1), key=lambda n: times[n] - times[n - 1])
    if times[after] - times[after - 1] <= LEFT_S:
        raise SegmentsDoNotFit("there is no calm in which it could be cut")
    return times[after] - LEFT_S


def joined(runs: Sequence[PolicyRun]) -> PolicyRun:
    """The run of a whole course from those of its legs, in order.

    Raises SegmentsDoNotFit if a leg other than the last ended in the middle of a recovery.
    """
    for run in runs[:-1]:
        if run.episodes and run.episodes[-1].training_at is None:
            at_h = run.episodes[-1].fault_at / 3_600
            raise SegmentsDoNotFit(f"the recovery that began in hour {at_h:.1f} was not over at the end of its leg")
    return PolicyRun(
        tuple(one for run in runs for one in run.episodes),
        tuple(one for run in runs for one in run.reboots),
        sum(run.replacements for run in runs),
        sum(run.messages for run in runs),
        sum(run.called for run in runs),
        sum(run.unnoticed for run in runs),
        runs[0].spares,
    )
