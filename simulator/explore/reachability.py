"""Reachability in a graph with millions of edges: the nodes from which a final node can be reached."""

from __future__ import annotations

from array import array
from collections.abc import Iterable


def backwards(count: int, sources: array[int], targets: array[int], finals: Iterable[int]) -> bytearray:
    """Return for each node 1 if a node of `finals` can be reached from it, else 0.

    Args:
        count: number of nodes.
        sources: start node of each edge.
        targets: end node of each edge.
        finals: the final nodes.
    """
    starts = array("q", bytes(8 * (count + 1)))
    for target in targets:
        starts[target + 1] += 1
    for n in range(count):
        starts[n + 1] += starts[n]
    predecessors, next_free = array("q", bytes(8 * len(targets))), array("q", starts)
    for source, target in zip(sources, targets, strict=True):
        predecessors[next_free[target]] = source
        next_free[target] += 1
    reached, stack = bytearray(count), list(finals)
    for final in finals:
        reached[final] = 1
    while stack:
        node = stack.pop()
        for source in predecessors[starts[node] : starts[node + 1]]:
            if not reached[source]:
                reached[source] = 1
                stack.append(source)
    return reached
