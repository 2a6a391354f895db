"""Contenders sent through courses, several at once: the product's own runs take minutes each."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

from .contender import Contender, Run
from .trace import Course

Pair = tuple[Contender, Course]


def play(pairs: Sequence[Pair], workers: int) -> list[Run]:
    """Each contender through its course, in the order given, by so many processes."""
    if workers <= 1 or len(pairs) <= 1:
        return [_play(pair) for pair in pairs]
    with ProcessPoolExecutor(min(workers, len(pairs))) as pool:
        return list(pool.map(_play, pairs))


def _play(pair: Pair) -> Run:
    contender, course = pair
    return contender.run(course)
