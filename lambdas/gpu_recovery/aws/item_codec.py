"""Records to DynamoDB items and back: dataclasses become maps, times ISO-8601 UTC, numbers numbers, sets sets.

An event or a command inside a record carries its type's name, so that a saved order can be carried out by anybody.
A key that an older release did not write takes the field's default; one that a newer release added is passed over.
What cannot be passed over raises the schema version, and an older release leaves such an item alone.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, fields, is_dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import IntEnum, StrEnum
from functools import cache
from typing import Any, get_args, get_origin

from gpu_recovery.core import commands, events
from gpu_recovery.core.errors import RecoveryError

NAMED: dict[str, type] = {
    kind.__name__: kind
    for kind in (*commands.JOB_COMMANDS, *commands.INSTANCE_COMMANDS, *events.JOB_EVENTS, *events.INSTANCE_EVENTS)
}
_BASES = (events.JobEvent, events.InstanceEvent)
SCHEMA = 4
"""The version that every item is written with; one without it is of version 1.

Raise it when a release that does not know the new form would do harm by reading it: a new command, event or status, or
a field that means something else now. A new field that older code may pass over is no reason.
"""
TTL = "expires_s"
"""The attribute by which DynamoDB deletes what is kept no longer: seconds since 1970."""


MISREADINGS = (ValueError, TypeError, AttributeError, KeyError, ArithmeticError)
"""What comes of reading a value that is not what its field needs."""


class ItemUnreadable(RecoveryError):
    """An item that does not hold what its record needs, or that a newer release wrote."""


def item_of(record: Any) -> dict[str, Any]:
    """The item of a whole record, with the schema version it is written in."""
    return {"schema": SCHEMA, **encode(record)}


@contextmanager
def reading(name: str, item: Mapping[str, Any], *needed: str) -> Iterator[None]:
    """Read the `item` of the record `name` in the block. ItemUnreadable names the record and what is wrong with it.

    That is: a newer release wrote it, one of the keys `needed` is missing, or what is there is not what it must be.
    """
    schema = item.get("schema", 1)
    if not isinstance(schema, int | Decimal):
        raise ItemUnreadable(f"{name}: its schema version is no number")
    if schema > SCHEMA:
        raise ItemUnreadable(f"{name} was written by a newer release (schema {schema}; this release knows {SCHEMA})")
    missing = [key for key in needed if key not in item]
    if missing:
        raise ItemUnreadable(f"{name}: an item without {', '.join(missing)}")
    try:
        yield
    except (ItemUnreadable, *MISREADINGS) as error:
        raise ItemUnreadable(f"{name}: {error}") from error


def readable(
    read: Callable[[Mapping[str, Any]], Any], items: Iterable[Mapping[str, Any]], unreadable: list[Exception] | None
) -> Iterator[Any]:
    """The records of those `items` that can be read; why the others cannot is added to `unreadable`, or raised."""
    for item in items:
        try:
            yield read(item)
        except ItemUnreadable as error:
            if unreadable is None:
                raise
            unreadable.append(error)


def to_iso(time: datetime) -> str:
    """ISO-8601 UTC with microseconds and a Z: such texts sort as the times do."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def from_iso(text: str) -> datetime:
    """The aware UTC time of an ISO-8601 text."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(UTC)


def encode(value: Any) -> Any:
    """`value` in the types that the boto3 serialiser knows."""
    if isinstance(value, StrEnum | IntEnum):
        return value.value
    if isinstance(value, datetime):
        return to_iso(value)
    if is_dataclass(value) and not isinstance(value, type):
        written = {field.name: encode(getattr(value, field.name)) for field in fields(value)}
        return {"type": type(value).__name__, **written} if type(value).__name__ in NAMED else written
    if isinstance(value, Mapping):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [encode(item) for item in value]
    if isinstance(value, frozenset | set):
        return sorted(encode(item) for item in value)
    return value


def decode(kind: Any, data: Any) -> Any:
    """The value of type `kind` that `encode` wrote as `data`."""
    origin = get_origin(kind)
    if origin in (types.UnionType, typing.Union):
        if data is None:
            return None
        return decode(next(arg for arg in get_args(kind) if arg is not type(None)), data)
    if kind is Any or kind in _BASES:
        return _decode_named(data) if isinstance(data, Mapping) and data.get("type") in NAMED else _plain(data)
    if origin is tuple:
        return tuple(decode(get_args(kind)[0], item) for item in _a(list, data))
    if origin is frozenset:
        return frozenset(decode(get_args(kind)[0], item) for item in _a((set, list), data))
    if origin is not None and issubclass(origin, Mapping):
        key_kind, item_kind = get_args(kind)
        return {decode(key_kind, key): decode(item_kind, item) for key, item in _a(Mapping, data).items()}
    if is_dataclass(kind):
        return _decode_record(kind, _a(Mapping, data))
    if kind is datetime:
        return from_iso(data)
    if kind is int:
        return int(data)
    if isinstance(kind, type) and issubclass(kind, IntEnum):
        return kind(int(data))
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return kind(data)
    return _plain(data)


def _a(kind: Any, data: Any) -> Any:
    """`data`, which must be of `kind`: a text is iterable too, and would be read letter by letter."""
    if not isinstance(data, kind):
        raise TypeError(f"holds a {type(data).__name__}")
    return data


def _decode_named(data: Mapping[str, Any]) -> Any:
    return _decode_record(NAMED[data["type"]], data)


@cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _decode_record(kind: Any, data: Mapping[str, Any]) -> Any:
    hints = _hints(kind)
    values: dict[str, Any] = {}
    for field in fields(kind):
        if field.name in data:
            try:
                values[field.name] = decode(hints[field.name], data[field.name])
            except MISREADINGS as error:
                raise ItemUnreadable(f"{kind.__name__}.{field.name}: {error}") from error
        elif field.default is MISSING and field.default_factory is MISSING:
            raise ItemUnreadable(f"a {kind.__name__} without {field.name}")
    return kind(**values)


def _plain(data: Any) -> Any:
    """Numbers come back from DynamoDB as Decimal; ours are whole."""
    if isinstance(data, Decimal):
        return int(data)
    if isinstance(data, Mapping):
        return {key: _plain(item) for key, item in data.items()}
    if isinstance(data, list):
        return [_plain(item) for item in data]
    return data
