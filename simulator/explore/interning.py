"""Interning of the parts of states: each different value is saved once and has a number.

A part is the value of a state in one place: a record, a field of the cluster, an instance, a task. A row has the parts
of a group of places in one state. Millions of states consist of some thousands of parts, so the form of a part is
computed once for all states.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from itertools import chain
from typing import Any, NamedTuple


class Form(NamedTuple):
    """Form of a value: its text without times, and its times in the order of the text, in seconds since START."""

    text: str
    times: tuple[int, ...] = ()


NAMELESS = Form("")
"""Form of a value that is not part of the name of a state."""
WorkStep = tuple[Callable[..., object], tuple[Any, ...]]
"""A pending step of an instance: a function and its arguments."""
Called = tuple[int, tuple[int, ...]]
"""Number of a form's text, and the times of the form."""


class InternedValues:
    """Table of parts: values and forms by number."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.called: list[Called] = []
        self._numbers: dict[bytes, int] = {}
        self._forms: dict[bytes, int] = {}

    def number(self, place: str, value: Any, exactly: Form, called: Form) -> int:
        """Return the number of `value` in `place`.

        Args:
            place: the place. Equal values in different places have different numbers.
            value: the value. The first value with the same form is saved, and the caller must not change it afterwards.
            exactly: the complete form of the value.
            called: the form that is part of the name of a state.
        """
        key = _digest(f"{place}|{exactly.times}|{exactly.text}")
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.values)
            self.values.append(value)
            form = self._forms.setdefault(_digest(called.text), len(self._forms))
            self.called.append((form, called.times))
        return number


class RowTable:
    """Table of the rows of a group of places. A row has the number of the part in each place."""

    def __init__(self, parts: InternedValues) -> None:
        self.parts = parts
        self.rows: list[tuple[int, ...]] = []
        self.called: list[Called] = []
        self._numbers: dict[tuple[int, ...], int] = {}
        self._forms: dict[tuple[int, ...], int] = {}

    def number(self, row: tuple[int, ...]) -> int:
        """Return the number of `row`, a new number for a new row."""
        number = self._numbers.get(row)
        if number is None:
            number = self._numbers[row] = len(self.rows)
            self.rows.append(row)
            called = [self.parts.called[part] for part in row]
            form = self._forms.setdefault(tuple([form for form, _ in called]), len(self._forms))
            self.called.append((form, tuple(chain.from_iterable(times for _, times in called))))
        return number


class StepTable:
    """Table of pending steps, in the order in which they were scheduled. `called` ignores the order."""

    def __init__(self) -> None:
        self.values: list[tuple[WorkStep, ...]] = []
        self.called: list[int] = []
        self._numbers: dict[tuple[str, ...], int] = {}
        self._sorted: dict[tuple[str, ...], int] = {}

    def number(self, steps: tuple[WorkStep, ...]) -> int:
        """Return the number of `steps`, a new number for new steps."""
        words = tuple([f"{function.__qualname__}{arguments}" for function, arguments in steps])
        number = self._numbers.get(words)
        if number is None:
            number = self._numbers[words] = len(self.values)
            self.values.append(steps)
            self.called.append(self._sorted.setdefault(tuple(sorted(words)), len(self._sorted)))
        return number


def _digest(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=16).digest()
