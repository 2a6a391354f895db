"""Which nodes of a graph lead to some of its nodes: the graph of all states has millions of edges."""

from __future__ import annotations

from array import array
from collections.abc import Iterable


def backwards(count: int, sources: array[int], targets: array[int], finals: Iterable[int]) -> bytearray:
    """For each of `count` nodes 1 if it leads to one of `finals`; edge n goes from `sources[n]` to `targets[n]`."""
    first = array("q", bytes(8 * (count + 1)))
    for target in targets:
        first[target + 1] += 1
    for n in range(count):
        first[n + 1] += first[n]
    into, filled = array("q", bytes(8 * len(targets))), array("q", first)
    for source, target in zip(sources, targets, strict=True):
        into[filled[target]] = source
        filled[target] += 1
    reached, stack = bytearray(count), list(finals)
    for final in finals:
        reached[final] = 1
    while stack:
        number = stack.pop()
        for source in into[first[number] : first[number + 1]]:
            if not reached[source]:
                reached[source] = 1
                stack.append(source)
    return reached
