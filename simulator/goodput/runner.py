"""Contenders sent through courses, several at once: the product's own runs take minutes each, unless cut into legs."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

from simulator.goodput.failure_trace import FailureTrace
from simulator.goodput.policy import Policy, PolicyRun
from simulator.goodput.segments import joined, segments_of

Pair = tuple[Policy, FailureTrace]


def play(pairs: Sequence[Pair], workers: int, legs: int = 1) -> list[PolicyRun]:
    """Each contender through its course, in the order given, by so many processes.

    legs: in how many those that take minutes go through a course. Raises SegmentsDoNotFit if it cannot be cut so.
    """
    cut = [segments_of(course, legs) if contender.is_slow else (course,) for contender, course in pairs]
    parts = [(contender, leg) for (contender, _), each in zip(pairs, cut, strict=True) for leg in each]
    runs = iter(_played(parts, workers))
    return [joined([next(runs) for _ in each]) for each in cut]


def _played(pairs: Sequence[Pair], workers: int) -> list[PolicyRun]:
    if workers <= 1 or len(pairs) <= 1:
        return [_play(pair) for pair in pairs]
    with ProcessPoolExecutor(min(workers, len(pairs))) as pool:
        return list(pool.map(_play, pairs))


def _play(pair: Pair) -> PolicyRun:
    contender, course = pair
    return contender.run(course)
