"""Contenders sent through courses, several at once: the product's own runs take minutes each, unless cut into legs."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

from simulator.goodput.failure_trace import Course
from simulator.goodput.policy import Contender, Run
from simulator.goodput.segments import joined, legs_of

Pair = tuple[Contender, Course]


def play(pairs: Sequence[Pair], workers: int, legs: int = 1) -> list[Run]:
    """Each contender through its course, in the order given, by so many processes.

    legs: in how many those that take minutes go through a course. Raises LegsDoNotFit if it cannot be cut so.
    """
    cut = [legs_of(course, legs) if contender.takes_minutes else (course,) for contender, course in pairs]
    parts = [(contender, leg) for (contender, _), each in zip(pairs, cut, strict=True) for leg in each]
    runs = iter(_played(parts, workers))
    return [joined([next(runs) for _ in each]) for each in cut]


def _played(pairs: Sequence[Pair], workers: int) -> list[Run]:
    if workers <= 1 or len(pairs) <= 1:
        return [_play(pair) for pair in pairs]
    with ProcessPoolExecutor(min(workers, len(pairs))) as pool:
        return list(pool.map(_play, pairs))


def _play(pair: Pair) -> Run:
    contender, course = pair
    return contender.run(course)
