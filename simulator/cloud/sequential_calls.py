"""Calls of the wrappers of ECS and EC2 in virtual time, which has no threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from gpu_recovery.aws.parallel_calls import ParallelCalls
from gpu_recovery.execution.context import sequentially


class SequentialCalls(ParallelCalls):
    """Makes the calls one after the other.

    for_each: applies a function to each item, where production uses several threads.
    """

    for_each: Callable[[Callable[[Any], object], Iterable[Any]], object] = staticmethod(sequentially)

    def each(self, work: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        """Call `work` for each item, one after the other. Return the results in the order of the items."""
        results: list[Any] = []
        self.for_each(lambda item: results.append(work(item)), items)
        return results
