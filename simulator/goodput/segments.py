"""Segments: a failure trace cut into parts that run in parallel. Weeks of thousands of instances take one core long.

A segment begins like a whole run, with a gang that trains on a new fleet. Faulty instances are healthy again, every
spare is there, lemons that were taken out are back, and no history exists. So a run in segments differs slightly from
the whole run.

A cut lies in a quiet interval, near the place that gives each segment the same number of failures. Candidates are the
failures within a twentieth of a segment of that place, but at least the next failure on each side. The cut is before
the candidate with the longest quiet interval before it. A gang that is not training at the cut is an error, because
the next segment would count it as training.

The option `--legs` and the report call a segment a leg.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from simulator.goodput.failure_trace import FailureTrace
from simulator.goodput.policy import PolicyRun

LEFT_S = 60.0
"""Seconds between a cut and the failure that follows it."""
TOLERANCE = 0.05
"""Largest distance of a cut from its place, as a share of the failures of a segment.

With a larger distance one segment would take longer than the others.
"""
FAILURES_MIN = 4
"""Lower bound of the mean number of failures per segment."""


class SegmentsDoNotFit(ValueError):
    """The trace cannot be cut into, or joined from, this number of segments. The message says why."""


def segments_of(trace: FailureTrace, number: int) -> tuple[FailureTrace, ...]:
    """Cut the trace into `number` segments, in order, with about the same number of failures each.

    Raises:
        SegmentsDoNotFit: the trace has too few failures, or no quiet interval near a cut.
    """
    if number == 1:
        return (trace,)
    per_segment = len(trace.failures) / number
    if per_segment < FAILURES_MIN:
        raise SegmentsDoNotFit(f"{len(trace.failures)} failures are too few for {number} legs")
    tolerance = max(1, round(TOLERANCE * per_segment))
    cuts = [_cut(trace, round(segment * per_segment), tolerance) for segment in range(1, number)]
    bounds = [trace.begins_s, *cuts, trace.ends_s]
    return tuple(replace(trace, segment=segment) for segment in pairwise(bounds))


def _cut(trace: FailureTrace, near: int, tolerance: int) -> float:
    """Time of a cut in seconds: shortly before a failure that is at most `tolerance` places away from place `near`."""
    times = [failure.at_s for failure in trace.failures]
    place = max(range(near - tolerance, near + tolerance + 1), key=lambda n: times[n] - times[n - 1])
    if times[place] - times[place - 1] <= LEFT_S:
        raise SegmentsDoNotFit("there is no calm in which it could be cut")
    return times[place] - LEFT_S


def joined(runs: Sequence[PolicyRun]) -> PolicyRun:
    """Join the runs of the segments, in order, into the run of the whole trace.

    Raises:
        SegmentsDoNotFit: a segment other than the last ended during a recovery.
    """
    for run in runs[:-1]:
        if run.episodes and run.episodes[-1].training_at is None:
            at_h = run.episodes[-1].fault_at / 3_600
            raise SegmentsDoNotFit(f"the recovery that began in hour {at_h:.1f} was not over at the end of its leg")
    return PolicyRun(
        tuple(episode for run in runs for episode in run.episodes),
        tuple(reboot for run in runs for reboot in run.reboots),
        sum(run.replacements for run in runs),
        sum(run.messages for run in runs),
        sum(run.called for run in runs),
        sum(run.unnoticed for run in runs),
        runs[0].spares,
    )
