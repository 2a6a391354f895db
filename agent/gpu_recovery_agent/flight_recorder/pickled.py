"""Reads a pickle that holds plain values only: dictionaries, lists, tuples, numbers, text, None.

A pickle is a program. `pickle.loads` imports the modules that it names and calls their functions, and it takes any
amount of memory. This reader knows only the instructions that build plain values, and refuses every other one. PyTorch
writes its dumps with protocol 2. The further instructions are those of protocols 3 to 5, for a dump that a program has
written again.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

BYTES_MAX = 64 * 1024 * 1024
"""Largest pickle that is read, in bytes. A dump of 2,000 entries with stack traces has a few megabytes."""
STEPS_MAX = 20_000_000
DEPTH_MAX = 12
"""Largest depth of nested values. A dump has 6 levels: dump, entries, entry, frames, frame, text."""
PARTS_MAX = 50_000_000
"""Largest number of keys, values and elements. 20,000 entries with 100 frames have 8 million of them."""
NUMBER_BYTES_MAX = 16
MEMO_MAX = 10_000_000
"""Largest number of a remembered value."""


class Unreadable(ValueError):
    """The content is no dump that can be read. The message says why."""


class _Mark:
    """Marks on the stack where the parts of a value begin."""


_MARK = _Mark()
_HOLDERS = (dict, list, tuple)
_FIXED: dict[int, Any] = {0x4E: None, 0x88: True, 0x89: False}  # N, NEWTRUE, NEWFALSE
_NUMBERS = {0x4A: "<i", 0x4B: "<B", 0x4D: "<H", 0x47: ">d"}  # BININT, BININT1, BININT2, BINFLOAT
_TEXTS = {0x8C: "<B", 0x58: "<I", 0x8D: "<Q", 0x55: "<B", 0x54: "<i"}  # text, and text of Python 2
_PUTS, _GETS = {0x71: "<B", 0x72: "<I"}, {0x68: "<B", 0x6A: "<I"}
_SIZES = {form: struct.calcsize(form) for form in ("<B", "<H", "<I", "<i", "<Q", ">d")}


def loads(data: bytes) -> Any:
    """Return the value in a pickle.

    Raises:
        Unreadable: an instruction builds more than plain values, the pickle is damaged, or it is over a bound.
    """
    if len(data) > BYTES_MAX:
        raise Unreadable(f"it is larger than {BYTES_MAX} bytes")
    try:
        value = _Reader(data).run()
    except (IndexError, KeyError, TypeError, struct.error, UnicodeDecodeError, MemoryError) as error:
        raise Unreadable(f"it is a damaged pickle: {type(error).__name__}") from None
    _check_shape(value)
    return value


class _Reader:
    """One run of the instructions."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        self._others: dict[int, Callable[[], None]] = {
            0x28: lambda: self._stack.append(_MARK),  # MARK
            0x7D: lambda: self._stack.append({}),  # EMPTY_DICT
            0x5D: lambda: self._stack.append([]),  # EMPTY_LIST
            0x29: lambda: self._stack.append(()),  # EMPTY_TUPLE
            0x64: lambda: self._stack.append(_pairs(self._parts())),  # DICT
            0x6C: lambda: self._stack.append(self._parts()),  # LIST
            0x74: lambda: self._stack.append(tuple(self._parts())),  # TUPLE
            0x85: lambda: self._tuple(1),  # TUPLE1
            0x86: lambda: self._tuple(2),
            0x87: lambda: self._tuple(3),
            0x80: lambda: self._skip(1),  # PROTO
            0x95: lambda: self._skip(8),  # FRAME
            0x73: self._set_item,
            0x75: self._set_items,
            0x61: self._append,
            0x65: self._extend,
            0x8A: lambda: self._long("<B"),  # LONG1
            0x8B: lambda: self._long("<i"),  # LONG4
            0x94: lambda: self._remember(len(self._memo)),  # MEMOIZE
        }

    def run(self) -> Any:
        """Run the instructions up to STOP and return the last value."""
        stack, data, memo, others = self._stack, self._data, self._memo, self._others
        for _ in range(STEPS_MAX):
            code = data[self._at]
            self._at += 1
            if code == 0x68:  # BINGET, half of the instructions of a dump
                stack.append(memo[data[self._at]])
                self._at += 1
            elif code in others:
                others[code]()
            elif code in _GETS:
                stack.append(memo[self._number(_GETS[code])])
            elif code in _PUTS:
                self._remember(self._number(_PUTS[code]))
            elif code in _NUMBERS:
                stack.append(self._number(_NUMBERS[code]))
            elif code in _TEXTS:
                stack.append(self._take(self._number(_TEXTS[code])).decode("utf-8"))
            elif code in _FIXED:
                stack.append(_FIXED[code])
            elif code == 0x2E:  # STOP
                if len(stack) != 1 or stack[0] is _MARK:
                    raise IndexError
                return stack[0]
            else:
                raise Unreadable(f"it holds more than plain values: pickle instruction 0x{code:02x} is refused")
        raise Unreadable(f"it has more than {STEPS_MAX} instructions")

    def _tuple(self, count: int) -> None:
        parts = self._stack[-count:]
        del self._stack[-count:]
        if len(parts) < count or _MARK in parts:
            raise IndexError
        self._stack.append(tuple(parts))

    def _skip(self, count: int) -> None:
        self._take(count)

    def _take(self, count: int) -> bytes:
        if not 0 <= count <= len(self._data) - self._at:
            raise IndexError
        self._at += count
        return self._data[self._at - count : self._at]

    def _number(self, form: str) -> Any:
        value = struct.unpack_from(form, self._data, self._at)[0]
        self._at += _SIZES[form]
        return value

    def _long(self, form: str) -> None:
        count = self._number(form)
        if not 0 <= count <= NUMBER_BYTES_MAX:
            raise Unreadable(f"it holds a number of more than {NUMBER_BYTES_MAX} bytes")
        self._stack.append(int.from_bytes(self._take(count), "little", signed=True))

    def _remember(self, number: int) -> None:
        if number > MEMO_MAX:
            raise Unreadable("it remembers too many values")
        if self._stack[-1] is _MARK:
            raise IndexError
        self._memo[number] = self._stack[-1]

    def _parts(self) -> list[Any]:
        """Take the values above the last mark, and the mark, from the stack."""
        at = len(self._stack) - 1
        while self._stack[at] is not _MARK:
            at -= 1
            if at < 0:
                raise IndexError
        parts = self._stack[at + 1 :]
        del self._stack[at:]
        return parts

    def _append(self) -> None:
        value = self._stack.pop()
        self._list([value])

    def _extend(self) -> None:
        self._list(self._parts())

    def _list(self, values: list[Any]) -> None:
        into = self._stack[-1]
        if not isinstance(into, list) or _MARK in values:
            raise TypeError
        into.extend(values)

    def _set_item(self) -> None:
        pair = self._stack[-2:]
        del self._stack[-2:]
        self._dict(pair)

    def _set_items(self) -> None:
        self._dict(self._parts())

    def _dict(self, parts: list[Any]) -> None:
        into = self._stack[-1]
        if not isinstance(into, dict):
            raise TypeError
        into.update(_pairs(parts))


def _pairs(parts: list[Any]) -> dict[Any, Any]:
    """Return the dictionary of keys and values in turn. A key is a text or a number."""
    keys, values = parts[::2], parts[1::2]
    if len(keys) != len(values) or not all(isinstance(key, (str, int)) for key in keys):
        raise TypeError
    return dict(zip(keys, values))


def _check_shape(value: Any) -> None:
    """Raise Unreadable if the value is nested too deeply, as one that holds itself is, or has too many parts.

    A pickle of a few bytes may name the same list again and again. Such a list counts as often as it is named.
    """
    parts = 0
    level = {id(value): (value, 1)} if isinstance(value, _HOLDERS) else {}
    for _ in range(DEPTH_MAX):
        deeper: dict[int, tuple[Any, int]] = {}
        for holder, times in level.values():
            parts += len(holder) * times
            for part in holder.values() if isinstance(holder, dict) else holder:
                if isinstance(part, _HOLDERS):
                    deeper[id(part)] = (part, deeper.get(id(part), (part, 0))[1] + times)
        if parts > PARTS_MAX:
            raise Unreadable(f"it has more than {PARTS_MAX} parts")
        if not deeper:
            return
        level = deeper
    raise Unreadable("it is nested too deeply")
