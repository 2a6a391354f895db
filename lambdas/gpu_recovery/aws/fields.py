"""Typed access to the fields of an AWS document. A malformed field is an error that names the field's path.

AWS leaves fields out and adds new fields. So a missing field is empty unless the caller requires it, and unknown fields
are ignored. A field that is present must have the expected type. A version that is a text, or an id with half a
character in it, would otherwise fail later, after other data has been written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeGuard

from gpu_recovery.core.errors import RecoveryError

TEXT_CHARACTERS_MAX = 8_192
"""Upper bound of characters in a text. ECS allows so many in all overrides of a task together."""
PROSE_CHARACTERS_MAX = 1_024
"""Characters of a reason that a record holds. AWS writes reasons for human readers."""
WHOLE_MAX = 2**63 - 1
"""Upper bound of a whole number that a table can hold."""
ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.:-]{0,254}(:\d{1,10})?")
"""Last part of the ARN of a task, a container instance, or a task definition with its revision.

A family has up to 255 characters and may begin with any character that it may contain. Tasks of other users must be
readable, too.
"""


class EventUnreadable(RecoveryError):
    """An AWS document with a missing or malformed field.

    field:   the path of the field.
    problem: what is wrong with it.
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


@dataclass(slots=True)
class Fields:
    """One object of a document.

    values: the fields of the object by name.
    path:   the path of the object in the document, for errors; "" for the document itself.

    The class is not frozen: each event creates dozens of objects, and a frozen object takes twice as long to create.
    """

    values: Mapping[str, Any]
    path: str = ""

    def at(self, name: str) -> str:
        """Return the path of the field `name`."""
        return f"{self.path}.{name}" if self.path else name

    def required(self, name: str) -> Fields:
        """Return this object.

        Raises:
            EventUnreadable: the field `name` is missing or blank.
        """
        value = self.values.get(name)
        if value is None or (isinstance(value, str) and not value.strip()):
            raise EventUnreadable(self.at(name), "is missing")
        return self

    def text(self, name: str, most: int = TEXT_CHARACTERS_MAX) -> str:
        """Return a text of at most `most` characters; "" if it is missing.

        Raises:
            EventUnreadable: the value is no text, is too long, or holds a lone surrogate.
        """
        value = self.values.get(name)
        return value if _is_plain(value, most) else _text(value, self.at(name), most)

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a list of texts; empty if it is missing."""
        listed = self._list(name)
        if _are_plain(listed):
            return tuple(listed)
        return tuple(_text(value, f"{self.at(name)}[{n}]") for n, value in enumerate(listed))

    def pairs(self, name: str, key: str = "name", value: str = "value") -> dict[str, str]:
        """Return a list of objects with the texts `key` and `value` as a mapping. The last of equal keys counts."""
        try:
            listed = self._list(name)
            pairs = {pair.get(key, ""): pair.get(value, "") for pair in listed}
            if len(pairs) == len(listed) and _are_plain(pairs) and _are_plain(pairs.values()):
                return pairs
        except (AttributeError, TypeError):
            pass  # the list holds something other than objects of texts: the line below raises with its path
        return {pair.text(key): pair.text(value) for pair in self.each(name)}

    def prose(self, name: str) -> str:
        """Return a text for human readers, cut to PROSE_CHARACTERS_MAX, with lone surrogates replaced."""
        value = self.values.get(name)
        if value is not None and not isinstance(value, str):
            raise EventUnreadable(self.at(name), f"must be a text, not {_kind(value)}")
        if not value:
            return ""
        return value[:PROSE_CHARACTERS_MAX].encode("utf-8", "replace").decode()

    def last_id(self, name: str) -> str:
        """Return the id of a field that holds an id or a long or short ARN, without blanks around it; "" if missing."""
        text = self.text(name).strip()
        last = text[text.rfind("/") + 1 :]
        if text and not ID.fullmatch(last):
            raise EventUnreadable(self.at(name), f"must be an id or an ARN that ends in one, not {text[:80]!r}")
        return last

    def whole(self, name: str, least: int = 0) -> int | None:
        """Return a whole number from `least` to WHOLE_MAX; None if it is missing."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool):
            raise EventUnreadable(self.at(name), f"must be a whole number, not {_kind(value)}")
        if not least <= value <= WHOLE_MAX:
            raise EventUnreadable(self.at(name), f"must be a whole number from {least} to {WHOLE_MAX}")
        return value

    def flag(self, name: str) -> bool:
        """Return a boolean; False if it is missing."""
        value = self.values.get(name)
        if value is not None and not isinstance(value, bool):
            raise EventUnreadable(self.at(name), f"must be true or false, not {_kind(value)}")
        return bool(value)

    def time(self, name: str) -> datetime | None:
        """Return an aware UTC time; None if it is missing or a placeholder, as in documented events."""
        return time_of(self.values.get(name))

    def fields(self, name: str) -> Fields:
        """Return the object in the field `name`; without fields if it is missing."""
        value = self.values.get(name)
        return fields_of({} if value is None else value, self.at(name))

    def each(self, name: str) -> list[Fields]:
        """Return a list of objects. A null in the list counts as an object without fields."""
        path = self.at(name)
        return [fields_of({} if entry is None else entry, f"{path}[{n}]") for n, entry in enumerate(self._list(name))]

    def first(self, name: str, key: str, value: str) -> Fields | None:
        """Return the first object of a list in which the text `key` is `value`; None if there is none."""
        listed, position = self._list(name), -1
        for n, entry in enumerate(listed):
            text = entry.get(key) if type(entry) is dict else None
            if not _is_plain(text):
                return next((fields for fields in self.each(name) if fields.text(key) == value), None)
            if text == value and position < 0:
                position = n
        return Fields(listed[position], f"{self.at(name)}[{position}]") if position >= 0 else None

    def _list(self, name: str) -> list[Any]:
        value = self.values.get(name)
        if value is not None and not isinstance(value, list):
            raise EventUnreadable(self.at(name), f"must be a list, not {_kind(value)}")
        return value or []


def fields_of(value: Any, path: str = "") -> Fields:
    """Return the fields of an object.

    Args:
        value: the object.
        path: the path of the object, for errors; "" for a whole document.

    Raises:
        EventUnreadable: `value` is no object.
    """
    if type(value) is not dict and not isinstance(value, Mapping):
        raise EventUnreadable(path or "the document", f"must be an object, not {_kind(value)}")
    return Fields(value, path)


def time_of(value: Any) -> datetime | None:
    """Return the aware UTC time of an ISO 8601 text or a datetime. A time without a zone counts as UTC.

    Returns:
        None for any other value, such as a placeholder.
    """
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    if not isinstance(value, datetime):
        return None
    if value.tzinfo is UTC:
        return value
    try:
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    except OverflowError:  # the conversion to UTC leaves the range of years 1 to 9999
        return None


def _is_plain(value: Any, most: int = TEXT_CHARACTERS_MAX) -> TypeGuard[str]:
    """Return whether `value` is a short ASCII text, as almost every text is. Such a text needs no further checks."""
    return type(value) is str and len(value) <= most and value.isascii()


def _are_plain(values: Iterable[Any]) -> bool:
    """Return whether all values together are a short ASCII text. One test of all is faster than a test of each."""
    try:
        together = "".join(values)
    except TypeError:
        return False
    return len(together) <= TEXT_CHARACTERS_MAX and together.isascii()


def _text(value: Any, path: str, most: int = TEXT_CHARACTERS_MAX) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise EventUnreadable(path, f"must be a text, not {_kind(value)}")
    if len(value) > most:
        raise EventUnreadable(path, f"must be a text of at most {most} characters, not {len(value)}")
    if not value.isprintable() and any("\ud800" <= character <= "\udfff" for character in value):
        raise EventUnreadable(path, "holds half a character")
    return value


def _kind(value: Any) -> str:
    """Return the JSON type of `value`, for errors."""
    if isinstance(value, bool):
        return "true or false"
    kinds = {str: "a text", int: "a number", float: "a number", list: "a list", type(None): "null"}
    return kinds.get(type(value), "an object" if isinstance(value, Mapping) else type(value).__name__)
