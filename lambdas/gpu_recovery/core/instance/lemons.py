"""How much a machine is a lemon: one that fails again and again, from what it did within the last 28 days.

The seven signals are those by which Meta finds lemon nodes ("Revisiting Reliability in Large-Scale Machine Learning
Research Clusters", arXiv 2410.21680): jobs that left it out, XIDs, tickets, times it was taken out, failures of jobs
on several nodes and on one, and the rate of the latter. The weights are ours, from what each signal can know: a failure
of a job on one machine has nobody else to blame, and one on many is shared; a user who leaves a machine out may only
guess; one fault writes many XIDs.

The prior for repetition is measured on the InfiniteHBD trace (400 nodes, 349 days, 584 faults): the probability of
another fault within 30 days after the k-th is 0.37, 0.43, 0.47 and, after the fifth, 0.62, against 0.13 expected.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

DAY_S = 86_400.0
WINDOW_S = 28 * DAY_S


class LemonSignal(StrEnum):
    """What is remembered of a machine; the values are the paper's names."""

    LEFT_OUT = "excl_jobid_count"
    XID = "xid_cnt"
    TICKET = "tickets"
    OUT = "out_count"
    GANG_FAILED = "multi_node_node_fails"
    ALONE_FAILED = "single_node_node_fails"
    ALONE_WELL = (
        "single_node_runs"  # a run on this machine alone that went well: what single_node_node_failure_rate needs
    )


@dataclass(frozen=True, slots=True)
class Signal:
    """One of them, and when it was (Unix seconds; whole ones where it is kept in a record)."""

    kind: LemonSignal
    at_s: float


@dataclass(frozen=True, slots=True)
class _SignalWeight:
    """Each of the first `most` adds `weight` to what is left of the doubt."""

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
STEP = 0.1
"""Scores that are compared with each other are compared in such steps: a day more or less makes no machine worse."""
RATE_WEIGHT = 0.3
"""What a failure rate of one would add."""
RATE_RUNS = 2.0
"""A rate from fewer runs than a handful says little: it is taken as if so many more had gone well."""

EXPECTED = 0.13
REPEATS = ((0.0, EXPECTED), (1.0, 0.37), (2.0, 0.43), (3.0, 0.47), (5.0, 0.62))
"""(faults so far, probability of another within 30 days)."""


def faded(at_s: float, now_s: float) -> float:
    """How much something still counts: 1 now, 0 after 28 days, and in a straight line between. NaN counts nothing."""
    age = now_s - at_s
    return min(1.0, 1.0 - age / WINDOW_S) if age < WINDOW_S else 0.0


def repetition(faults: float) -> float:
    """How much likelier another fault is than by chance after so many, on a scale from 0 to 1."""
    for (few, low), (many, high) in pairwise(REPEATS):
        if faults <= many:
            return (low + (high - low) * (faults - few) / (many - few) - EXPECTED) / (1.0 - EXPECTED)
    return (REPEATS[-1][1] - EXPECTED) / (1.0 - EXPECTED)


def lemon_score(signals: Iterable[Signal], now_s: float) -> float:
    """From 0 (nothing is known against the machine) to 1. More signals never lower it, except runs that went well.

    Independent doubts multiply: what is left of the doubt after the repetition is lessened by each signal in turn.
    """
    count = dict.fromkeys(LemonSignal, 0.0)
    for one in sorted(signals, key=lambda one: (one.kind, one.at_s)):
        count[one.kind] += faded(one.at_s, now_s)
    alone, well = count[LemonSignal.ALONE_FAILED], count[LemonSignal.ALONE_WELL]
    faults = max(count[LemonSignal.GANG_FAILED] + alone, count[LemonSignal.OUT])  # who failed was often taken out
    doubt = 1.0 - repetition(faults)
    for kind, counted in WEIGHTS.items():
        doubt *= (1.0 - counted.weight) ** min(count[kind], counted.most)
    doubt *= 1.0 - RATE_WEIGHT * alone / (alone + well + RATE_RUNS)
    return min(max(1.0 - doubt, 0.0), 1.0)


def graded(score: float) -> float:
    """The score in whole steps, rounded down: machines that are much alike are equal."""
    return math.floor(score / STEP + 1e-9) * STEP if score >= STEP else 0.0


def signals_sentence(signals: Iterable[Signal], now_s: float) -> str:
    """What the score is made of: `3 repairs and 2 XIDs in 28 days`; "" if of nothing."""
    recent = [one.kind for one in signals if faded(one.at_s, now_s) > 0]
    words = [f"{count} {names[count > 1]}" for kind, names in _WORDS.items() if (count := recent.count(kind))]
    if not words:
        return ""
    return f"{' and '.join([', '.join(words[:-1]), words[-1]] if words[1:] else words)} in {WINDOW_S / DAY_S:.0f} days"


_WORDS = {
    LemonSignal.OUT: ("repair", "repairs"),
    LemonSignal.XID: ("XID", "XIDs"),
    LemonSignal.TICKET: ("call for a person or another machine", "calls for a person or another machine"),
    LemonSignal.GANG_FAILED: ("failed gang", "failed gangs"),
    LemonSignal.ALONE_FAILED: ("failed job alone", "failed jobs alone"),
    LemonSignal.LEFT_OUT: ("time left out", "times left out"),
    LemonSignal.ALONE_WELL: ("run that went well", "runs that went well"),
}
