"""Keeping millions of states in few bytes each: as numbers in arrays, and by number what very many of them share."""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterator
from typing import Generic, NamedTuple, TypeVar

from simulator.explore.state_capture import Core

Value = TypeVar("Value", bound=Hashable)
_WIDTH = len(Core._fields)
_BITS = 24
"""Of what a state has beside its core: so many that are different can be numbered."""


class Numbered(Generic[Value]):
    """Values by number, each once."""

    def __init__(self) -> None:
        self.values: list[Value] = []
        self._numbers: dict[Value, int] = {}

    def number(self, value: Value) -> int:
        """The number of `value`."""
        known = self._numbers.get(value)
        if known is None:
            known = self._numbers[value] = len(self.values)
            self.values.append(value)
        return known


class Cores:
    """A list of cores."""

    def __init__(self) -> None:
        self._kept = array("i")

    def __len__(self) -> int:
        return len(self._kept) // _WIDTH

    def __getitem__(self, number: int) -> Core:
        return Core._make(self._kept[number * _WIDTH : (number + 1) * _WIDTH])

    def __iter__(self) -> Iterator[Core]:
        return (self[number] for number in range(len(self)))

    def append(self, core: Core) -> None:
        """Put one more at its end."""
        self._kept.extend(core)


class PackedRows:
    """Rows of numbers of any length by key; a row that is kept again takes the place of the one before."""

    def __init__(self) -> None:
        self._kept = array("i")
        self._at: dict[int, int] = {}

    def get(self, key: int) -> array[int] | None:
        """The row that is kept under `key`."""
        at = self._at.get(key)
        return None if at is None else self._kept[at + 1 : at + 1 + self._kept[at]]

    def put(self, key: int, row: list[int]) -> None:
        """Keep it."""
        self._at[key] = len(self._kept)
        self._kept.append(len(row))
        self._kept.extend(row)


class Edge(NamedTuple):
    """A state that is reached, from which, and by which move."""

    state: int
    parent: int
    move: int


class Edges:
    """A list of edges."""

    def __init__(self) -> None:
        self._states, self._parents, self._moves = array("Q"), array("i"), array("i")

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[Edge]:
        return map(Edge._make, zip(self._states, self._parents, self._moves, strict=True))

    def __getitem__(self, number: int) -> Edge:
        return Edge(self._states[number], self._parents[number], self._moves[number])

    def append(self, edge: Edge) -> None:
        """Put one more at its end."""
        self._states.append(edge.state)
        self._parents.append(edge.parent)
        self._moves.append(edge.move)


def packed(core: int, beside: int) -> int:
    """One number for both. OverflowError for more than there is room for."""
    if beside >> _BITS:
        raise OverflowError("too many different states of what is on its way")
    return core << _BITS | beside


def unpacked(state: int) -> tuple[int, int]:
    """The core, and what is beside it."""
    return state >> _BITS, state & ((1 << _BITS) - 1)
