"""What states are made of, each kept once and known by its number.

A part is one value that a state has in one place: a record, a field of the cluster, a machine, a task. A row is what a
group of places holds in one state. Millions of states are rows of some thousands of parts, and what a part is called is
worked out once for all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from itertools import chain
from typing import Any, NamedTuple


class Form(NamedTuple):
    """What a value is, in words without its times; and its times in the order of the words, in seconds since START."""

    text: str
    times: tuple[int, ...] = ()


NAMELESS = Form("")
"""What is no part of a name."""
WorkStep = tuple[Callable[..., object], tuple[Any, ...]]
"""Something that a machine is about to do."""
Called = tuple[int, tuple[int, ...]]
"""A form by number, and its times."""


class InternedValues:
    """The values, each under the number that `number` has given it."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.called: list[Called] = []
        self._numbers: dict[bytes, int] = {}
        self._forms: dict[bytes, int] = {}

    def number(self, place: str, value: Any, exactly: Form, called: Form) -> int:
        """The number of `value` in `place`. Values that are `exactly` the same are one: the first one is kept, and must
        not be changed by anybody. `called`: what of it makes the name of a state."""
        key = _digest(f"{place}|{exactly.times}|{exactly.text}")
        known = self._numbers.get(key)
        if known is None:
            known = self._numbers[key] = len(self.values)
            self.values.append(value)
            form = self._forms.setdefault(_digest(called.text), len(self._forms))
            self.called.append((form, called.times))
        return known


class RowTable:
    """What one group of places holds, by number; a row has the number of the part in each of them."""

    def __init__(self, parts: InternedValues) -> None:
        self.parts = parts
        self.rows: list[tuple[int, ...]] = []
        self.called: list[Called] = []
        self._numbers: dict[tuple[int, ...], int] = {}
        self._forms: dict[tuple[int, ...], int] = {}

    def number(self, row: tuple[int, ...]) -> int:
        """The number of a row."""
        known = self._numbers.get(row)
        if known is None:
            known = self._numbers[row] = len(self.rows)
            self.rows.append(row)
            called = [self.parts.called[part] for part in row]
            form = self._forms.setdefault(tuple([form for form, _ in called]), len(self._forms))
            self.called.append((form, tuple(chain.from_iterable(times for _, times in called))))
        return known


class StepTable:
    """What machines are about to do, in the order it was asked for, by number; `called` does not care for the order."""

    def __init__(self) -> None:
        self.values: list[tuple[WorkStep, ...]] = []
        self.called: list[int] = []
        self._numbers: dict[tuple[str, ...], int] = {}
        self._sorted: dict[tuple[str, ...], int] = {}

    def number(self, steps: tuple[WorkStep, ...]) -> int:
        """The number of these steps."""
        words = tuple([f"{happen.__qualname__}{about}" for happen, about in steps])
        known = self._numbers.get(words)
        if known is None:
            known = self._numbers[words] = len(self.values)
            self.values.append(steps)
            self.called.append(self._sorted.setdefault(tuple(sorted(words)), len(self._sorted)))
        return known


def _digest(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=16).digest()
