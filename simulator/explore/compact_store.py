"""Compact store of millions of states: numbers in arrays, and shared values saved once under a number."""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterator
from typing import Generic, NamedTuple, TypeVar

from simulator.explore.state_capture import Core

Value = TypeVar("Value", bound=Hashable)
_WIDTH = len(Core._fields)
"""Numbers per core."""
_BITS = 24
"""Bits for the number of the other fields of a state, beside its core. So 2^24 combinations of them are possible."""


class Numbered(Generic[Value]):
    """Table that gives each different value a number, counted from 0."""

    def __init__(self) -> None:
        self.values: list[Value] = []
        self._numbers: dict[Value, int] = {}

    def number(self, value: Value) -> int:
        """Return the number of `value`, a new number for a new value."""
        number = self._numbers.get(value)
        if number is None:
            number = self._numbers[value] = len(self.values)
            self.values.append(value)
        return number


class Cores:
    """List of cores in an array."""

    def __init__(self) -> None:
        self._kept = array("i")

    def __len__(self) -> int:
        return len(self._kept) // _WIDTH

    def __getitem__(self, number: int) -> Core:
        return Core._make(self._kept[number * _WIDTH : (number + 1) * _WIDTH])

    def __iter__(self) -> Iterator[Core]:
        return (self[number] for number in range(len(self)))

    def append(self, core: Core) -> None:
        """Append a core."""
        self._kept.extend(core)


class PackedRows:
    """Rows of numbers by key, each of any length."""

    def __init__(self) -> None:
        self._kept = array("i")
        self._at: dict[int, int] = {}

    def get(self, key: int) -> array[int] | None:
        """Return the row of `key`, or None."""
        at = self._at.get(key)
        return None if at is None else self._kept[at + 1 : at + 1 + self._kept[at]]

    def put(self, key: int, row: list[int]) -> None:
        """Save `row` under `key`, in the place of a former row."""
        self._at[key] = len(self._kept)
        self._kept.append(len(row))
        self._kept.extend(row)


class Edge(NamedTuple):
    """Edge of the graph of states: a packed state, the number of its parent state, and the number of the move."""

    state: int
    parent: int
    move: int


class Edges:
    """List of edges in arrays."""

    def __init__(self) -> None:
        self._states, self._parents, self._moves = array("Q"), array("i"), array("i")

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[Edge]:
        return map(Edge._make, zip(self._states, self._parents, self._moves, strict=True))

    def __getitem__(self, number: int) -> Edge:
        return Edge(self._states[number], self._parents[number], self._moves[number])

    def append(self, edge: Edge) -> None:
        """Append an edge."""
        self._states.append(edge.state)
        self._parents.append(edge.parent)
        self._moves.append(edge.move)


def packed(core: int, beside: int) -> int:
    """Return a number for the pair of a core and the number of the other fields (`beside`).

    Raises:
        OverflowError: `beside` has more than `_BITS` bits.
    """
    if beside >> _BITS:
        raise OverflowError("too many different states of what is on its way")
    return core << _BITS | beside


def unpacked(state: int) -> tuple[int, int]:
    """Return the numbers of the core and of the other fields, the reverse of `packed`."""
    return state >> _BITS, state & ((1 << _BITS) - 1)
