"""Lemon score of a chronically faulty instance that passes its checks: its failures over 28 days, of all jobs.

The seven signals are those by which Meta finds lemon nodes ("Revisiting Reliability in Large-Scale Machine Learning
Research Clusters", arXiv 2410.21680): jobs that left the node out, XIDs, tickets, times out of service, failures of
jobs on several nodes, failures of jobs on a single node, and the rate of the latter. The weights are ours and follow
from what each signal can show. A failure of a job on a single instance can have no other instance as its cause; a
failure on many instances is shared. A user who leaves an instance out may only guess. A single fault writes many XIDs.

The prior for repetition is measured on the InfiniteHBD trace (400 nodes, 349 days, 584 faults). The probability of
another fault within 30 days after the k-th is 0.37, 0.43, 0.47 and, after the fifth, 0.62, against 0.13 expected.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

DAY_S = 86_400.0
"""Seconds of a day."""
WINDOW_S = 28 * DAY_S
"""Seconds after which a signal no longer counts."""


class LemonSignal(StrEnum):
    """Kinds of signals in the fault history; the values are the paper's names."""

    LEFT_OUT = "excl_jobid_count"
    XID = "xid_cnt"
    TICKET = "tickets"
    OUT = "out_count"
    GANG_FAILED = "multi_node_node_fails"
    ALONE_FAILED = "single_node_node_fails"
    ALONE_WELL = "single_node_runs"  # a successful run on this instance alone, for single_node_node_failure_rate


@dataclass(frozen=True, slots=True)
class Signal:
    """A signal and its time in Unix seconds; whole seconds in a record."""

    kind: LemonSignal
    at_s: float


@dataclass(frozen=True, slots=True)
class _SignalWeight:
    """Weight of a signal kind: each of the first `most` signals removes the share `weight` of the remaining doubt."""

    weight: float
    most: float


WEIGHTS: Mapping[LemonSignal, _SignalWeight] = {
    LemonSignal.LEFT_OUT: _SignalWeight(0.04, 5.0),
    LemonSignal.XID: _SignalWeight(0.04, 5.0),
    LemonSignal.TICKET: _SignalWeight(0.15, 3.0),
    LemonSignal.OUT: _SignalWeight(0.08, 4.0),
    LemonSignal.GANG_FAILED: _SignalWeight(0.06, 5.0),
    LemonSignal.ALONE_FAILED: _SignalWeight(0.15, 4.0),
}
"""Weights of the signal kinds."""
STEP = 0.1
"""Step in which scores are compared, so that a day more or less does not make an instance worse than another."""
RATE_WEIGHT = 0.3
"""Weight of a failure rate of 1."""
RATE_RUNS = 2.0
"""Number of successful runs added to the rate, because a rate of a few runs says little."""

EXPECTED = 0.13
"""Probability of a fault within 30 days by chance (InfiniteHBD trace)."""
REPEATS = ((0.0, EXPECTED), (1.0, 0.37), (2.0, 0.43), (3.0, 0.47), (5.0, 0.62))
"""Pairs of the number of faults so far and the probability of another fault within 30 days."""


def faded(at_s: float, now_s: float) -> float:
    """Return how much a signal still counts: 1 now, 0 after 28 days, linear in between. NaN counts 0."""
    age = now_s - at_s
    return min(1.0, 1.0 - age / WINDOW_S) if age < WINDOW_S else 0.0


def repetition(faults: float) -> float:
    """Return how much likelier than chance another fault is after `faults` faults, on a scale from 0 to 1."""
    for (few, low), (many, high) in pairwise(REPEATS):
        if faults <= many:
            return (low + (high - low) * (faults - few) / (many - few) - EXPECTED) / (1.0 - EXPECTED)
    return (REPEATS[-1][1] - EXPECTED) / (1.0 - EXPECTED)


def lemon_score(signals: Iterable[Signal], now_s: float) -> float:
    """Return the lemon score from 0 (no signal) to 1. More signals never lower it, except successful runs.

    Independent doubts multiply: each signal in turn reduces the doubt that remains after the repetition.
    """
    count = dict.fromkeys(LemonSignal, 0.0)
    for signal in sorted(signals, key=lambda signal: (signal.kind, signal.at_s)):
        count[signal.kind] += faded(signal.at_s, now_s)
    alone, well = count[LemonSignal.ALONE_FAILED], count[LemonSignal.ALONE_WELL]
    # An instance that failed was often taken out of service for it, so the two are not added.
    faults = max(count[LemonSignal.GANG_FAILED] + alone, count[LemonSignal.OUT])
    doubt = 1.0 - repetition(faults)
    for kind, signal_weight in WEIGHTS.items():
        doubt *= (1.0 - signal_weight.weight) ** min(count[kind], signal_weight.most)
    doubt *= 1.0 - RATE_WEIGHT * alone / (alone + well + RATE_RUNS)
    return min(max(1.0 - doubt, 0.0), 1.0)


def graded(score: float) -> float:
    """Return the score rounded down to whole steps: instances that are much alike are equal."""
    return math.floor(score / STEP + 1e-9) * STEP if score >= STEP else 0.0


def signals_sentence(signals: Iterable[Signal], now_s: float) -> str:
    """Return the signals as a sentence such as `3 times under repair and 2 XIDs in 28 days`; "" if there are none."""
    recent = [signal.kind for signal in signals if faded(signal.at_s, now_s) > 0]
    words = [f"{count} {names[count > 1]}" for kind, names in _SIGNAL_NAMES.items() if (count := recent.count(kind))]
    if not words:
        return ""
    return f"{' and '.join([', '.join(words[:-1]), words[-1]] if words[1:] else words)} in {WINDOW_S / DAY_S:.0f} days"


_SIGNAL_NAMES = {
    LemonSignal.OUT: ("time under repair", "times under repair"),
    LemonSignal.XID: ("XID", "XIDs"),
    LemonSignal.TICKET: ("need an operator or another instance", "needs an operator or another instance"),
    LemonSignal.GANG_FAILED: ("failed gang", "failed gangs"),
    LemonSignal.ALONE_FAILED: ("failed job alone", "failed jobs alone"),
    LemonSignal.LEFT_OUT: ("time left out", "times left out"),
    LemonSignal.ALONE_WELL: ("run that went well", "runs that went well"),
}
