"""Codec between records and DynamoDB items: dataclasses become maps, times ISO 8601 texts in UTC, sets sorted lists.

An event or a command in a record is stored with the name of its type, so that any function can execute a saved command.
A key that an older release did not write takes the field's default. A key that a newer release added is ignored. A
change that older releases must not ignore raises the schema version, and older releases then do not read the item.
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
_PLAIN = frozenset({str, int, bool, Decimal, type(None)})
"""Types that are stored as they are. Most values of a record have one of them."""
SCHEMA = 4
"""Schema version of every written item. An item without a version has version 1.

Raise the version if an older release would do harm with the new form: for a new command, event or status, or a field
with a changed meaning. A new field that older code may ignore needs no new version.
"""
TTL = "expires_s"
"""Attribute with the time (seconds since 1970) after which DynamoDB deletes the item."""


MISREADINGS = (ValueError, TypeError, AttributeError, KeyError, ArithmeticError)
"""Errors of decoding a value that does not fit its field."""


class ItemUnreadable(RecoveryError):
    """A malformed item, or an item that a newer release wrote."""


def item_of(record: Any) -> dict[str, Any]:
    """Return the item of a whole record, with its schema version."""
    return {"schema": SCHEMA, **encode(record)}


@contextmanager
def reading(name: str, item: Mapping[str, Any], *needed: str) -> Iterator[None]:
    """Context in which an item is decoded. Errors of decoding become ItemUnreadable.

    Args:
        name: the record, for errors.
        item: the item as plain values.
        needed: the keys that the item must have.

    Raises:
        ItemUnreadable: a newer release wrote the item, a needed key is missing, or a value is malformed.
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
    """Yield the decoded records of `items`.

    Args:
        read: decodes one item. Raises ItemUnreadable.
        items: the items as plain values.
        unreadable: collects the errors of items that cannot be read. Without it the first such error is raised.
    """
    for item in items:
        try:
            yield read(item)
        except ItemUnreadable as error:
            if unreadable is None:
                raise
            unreadable.append(error)


def to_iso(time: datetime) -> str:
    """Return an ISO 8601 text in UTC with microseconds and a Z. Such texts sort in the order of their times."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def from_iso(text: str) -> datetime:
    """Return the aware UTC time of an ISO 8601 text."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(UTC)


@cache
def field_names(kind: Any) -> tuple[str, ...]:
    """Return the names of the fields of a dataclass. A call at import would generate the methods of the class."""
    return tuple(field.name for field in fields(kind))


def encode(value: Any) -> Any:
    """Return `value` in types that the boto3 serialiser accepts."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if isinstance(value, StrEnum | IntEnum):
        return value.value
    if isinstance(value, datetime):
        return to_iso(value)
    if is_dataclass(kind):
        encoded = {name: encode(getattr(value, name)) for name in field_names(kind)}
        return {"type": kind.__name__, **encoded} if kind.__name__ in NAMED else encoded
    if isinstance(value, Mapping):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [encode(item) for item in value]
    if isinstance(value, frozenset | set):
        return sorted(encode(item) for item in value)
    return value


def decode(kind: Any, data: Any) -> Any:
    """Return the value of type `kind` that `encode` wrote as `data`.

    Raises:
        ItemUnreadable: a dataclass in `data` is malformed.
        ValueError, TypeError, AttributeError, KeyError, ArithmeticError: another value is malformed.
    """
    return _decoder(kind)(data)


@cache
def _decoder(kind: Any) -> Callable[[Any], Any]:
    """Return the function that decodes values of type `kind`.

    The parts of the type are looked at when there is data for them: else methods of classes would be generated in vain.
    """
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (types.UnionType, typing.Union):
        present = next(argument for argument in arguments if argument is not type(None))
        return lambda data: None if data is None else decode(present, data)
    if kind is Any or kind in _BASES:
        return lambda data: (
            _decode_named(data) if isinstance(data, Mapping) and data.get("type") in NAMED else _plain(data)
        )
    if origin is tuple:
        return lambda data: tuple([decode(arguments[0], one) for one in _a(list, data)])
    if origin is frozenset:
        return lambda data: frozenset([decode(arguments[0], one) for one in _a((set, list), data)])
    if origin is not None and issubclass(origin, Mapping):
        key, item = arguments
        return lambda data: {decode(key, name): decode(item, one) for name, one in _a(Mapping, data).items()}
    if is_dataclass(kind):
        return lambda data: _decode_record(kind, _a(Mapping, data))
    if kind is datetime:
        return from_iso
    if isinstance(kind, type) and issubclass(kind, IntEnum):
        return lambda data: kind(int(data))
    return kind if kind is int or (isinstance(kind, type) and issubclass(kind, StrEnum)) else _plain


def _a(kind: Any, data: Any) -> Any:
    """Return `data` if it is of type `kind`, else raise TypeError. A text is iterable too, but is no list."""
    if not isinstance(data, kind):
        raise TypeError(f"holds a {type(data).__name__}")
    return data


def _decode_named(data: Mapping[str, Any]) -> Any:
    return _decode_record(NAMED[data["type"]], data)


@cache
def _described(kind: Any) -> tuple[tuple[str, Any, bool], ...]:
    """Return name, type, and whether it must be there, of each field of a dataclass."""
    hints = typing.get_type_hints(kind)
    return tuple(
        (field.name, hints[field.name], field.default is MISSING and field.default_factory is MISSING)
        for field in fields(kind)
    )


def _decode_record(kind: Any, data: Mapping[str, Any]) -> Any:
    values: dict[str, Any] = {}
    for name, hint, is_required in _described(kind):
        if name in data:
            try:
                values[name] = decode(hint, data[name])
            except MISREADINGS as error:
                raise ItemUnreadable(f"{kind.__name__}.{name}: {error}") from error
        elif is_required:
            raise ItemUnreadable(f"a {kind.__name__} without {name}")
    return kind(**values)


def _plain(data: Any) -> Any:
    """Return `data` with each Decimal as int: DynamoDB returns Decimals, and all stored numbers are whole."""
    if isinstance(data, Decimal):
        return int(data)
    if isinstance(data, Mapping):
        return {key: _plain(item) for key, item in data.items()}
    if isinstance(data, list):
        return [_plain(item) for item in data]
    return data
