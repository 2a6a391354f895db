"""The fields of an AWS document, read by name: absent is empty, and of the wrong kind is an error that says where.

AWS leaves fields out and adds new ones, so nothing is required that is not asked for and nothing unknown is looked at.
What is there must be what its name promises: a version that is a text, or half a character in an id, would fail
somewhere in the depths, after something else has been written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeGuard

from gpu_recovery.core.errors import RecoveryError

TEXT_CHARACTERS_MAX = 8_192
"""ECS allows so many in all overrides of a task together; no single text of ours is longer."""
PROSE_CHARACTERS_MAX = 1_024
"""What a record keeps of a reason, which AWS writes for people."""
WHOLE_MAX = 2**63 - 1
ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.:-]{0,254}(:\d{1,10})?")
"""The last part of an ARN: a task's, a container instance's, a task definition's with its revision. A family has up to
255 characters and may begin with any of its own: other people's tasks must be readable too."""


class EventUnreadable(RecoveryError):
    """A document of AWS that cannot be understood. `field` is the path of the culprit, `problem` what is wrong."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


@dataclass(slots=True)
class Fields:
    """One object of a document; `path` is where it is, as errors name it. Dozens are made of each event: not frozen,
    they take half the time to make."""

    values: Mapping[str, Any]
    path: str = ""

    def at(self, name: str) -> str:
        """The path of the field `name`."""
        return f"{self.path}.{name}" if self.path else name

    def required(self, name: str) -> Fields:
        """These fields, once `name` is there and not blank."""
        value = self.values.get(name)
        if value is None or (isinstance(value, str) and not value.strip()):
            raise EventUnreadable(self.at(name), "is missing")
        return self

    def text(self, name: str, most: int = TEXT_CHARACTERS_MAX) -> str:
        """A text of at most `most` characters."""
        value = self.values.get(name)
        return value if _is_plain(value, most) else _text(value, self.at(name), most)

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts."""
        listed = self._list(name)
        if _are_plain(listed):
            return tuple(listed)
        return tuple(_text(one, f"{self.at(name)}[{n}]") for n, one in enumerate(listed))

    def pairs(self, name: str, key: str = "name", value: str = "value") -> dict[str, str]:
        """A list of objects of two texts each, `key` and `value`, as a mapping; the later of two keys counts."""
        try:
            listed = self._list(name)
            found = {one.get(key, ""): one.get(value, "") for one in listed}
            if len(found) == len(listed) and _are_plain(found) and _are_plain(found.values()):
                return found
        except (AttributeError, TypeError):
            pass  # something else than objects and texts is there: said below, with its path
        return {one.text(key): one.text(value) for one in self.each(name)}

    def prose(self, name: str) -> str:
        """Words for people: cut to what a record can hold, with half characters replaced."""
        value = self.values.get(name)
        if value is not None and not isinstance(value, str):
            raise EventUnreadable(self.at(name), f"must be a text, not {_kind(value)}")
        if not value:
            return ""
        return value[:PROSE_CHARACTERS_MAX].encode("utf-8", "replace").decode()

    def last_id(self, name: str) -> str:
        """The id at the end of a long or short ARN, or an id that stands by itself; blanks around it are no part."""
        told = self.text(name).strip()
        found = told[told.rfind("/") + 1 :]
        if told and not ID.fullmatch(found):
            raise EventUnreadable(self.at(name), f"must be an id or an ARN that ends in one, not {told[:80]!r}")
        return found

    def whole(self, name: str, least: int = 0) -> int | None:
        """A whole number that a table can hold."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool):
            raise EventUnreadable(self.at(name), f"must be a whole number, not {_kind(value)}")
        if not least <= value <= WHOLE_MAX:
            raise EventUnreadable(self.at(name), f"must be a whole number from {least} to {WHOLE_MAX}")
        return value

    def flag(self, name: str) -> bool:
        """True or false; False where it is absent."""
        value = self.values.get(name)
        if value is not None and not isinstance(value, bool):
            raise EventUnreadable(self.at(name), f"must be true or false, not {_kind(value)}")
        return bool(value)

    def time(self, name: str) -> datetime | None:
        """The aware UTC time; None for a placeholder, which documented events have in its place."""
        return time_of(self.values.get(name))

    def fields(self, name: str) -> Fields:
        """An object inside this one."""
        value = self.values.get(name)
        return fields_of({} if value is None else value, self.at(name))

    def each(self, name: str) -> list[Fields]:
        """A list of objects; one that is null counts as empty."""
        path = self.at(name)
        return [fields_of({} if one is None else one, f"{path}[{n}]") for n, one in enumerate(self._list(name))]

    def first(self, name: str, key: str, value: str) -> Fields | None:
        """The first of a list of objects whose text `key` is `value`."""
        listed, found = self._list(name), -1
        for n, one in enumerate(listed):
            told = one.get(key) if type(one) is dict else None
            if not _is_plain(told):
                return next((one for one in self.each(name) if one.text(key) == value), None)
            if told == value and found < 0:
                found = n
        return Fields(listed[found], f"{self.at(name)}[{found}]") if found >= 0 else None

    def _list(self, name: str) -> list[Any]:
        value = self.values.get(name)
        if value is not None and not isinstance(value, list):
            raise EventUnreadable(self.at(name), f"must be a list, not {_kind(value)}")
        return value or []


def fields_of(value: Any, path: str = "") -> Fields:
    """The fields of `value`, which is at `path` ("" for a whole document). EventUnreadable if it is no object."""
    if type(value) is not dict and not isinstance(value, Mapping):
        raise EventUnreadable(path or "the document", f"must be an object, not {_kind(value)}")
    return Fields(value, path)


def time_of(value: Any) -> datetime | None:
    """The aware UTC time of an ISO text or a datetime; None for anything else, such as a placeholder."""
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
    except OverflowError:  # the year 1 or 9999, in a zone on the wrong side of it
        return None


def _is_plain(value: Any, most: int = TEXT_CHARACTERS_MAX) -> TypeGuard[str]:
    """Whether `value` is a text with which nothing can be wrong: almost every one is, and needs no path."""
    return type(value) is str and len(value) <= most and value.isascii()


def _are_plain(values: Iterable[Any]) -> bool:
    """Whether each of `values` is plain, asked of all at once."""
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
    """What JSON calls the kind of `value`."""
    if isinstance(value, bool):
        return "true or false"
    kinds = {str: "a text", int: "a number", float: "a number", list: "a list", type(None): "null"}
    return kinds.get(type(value), "an object" if isinstance(value, Mapping) else type(value).__name__)
