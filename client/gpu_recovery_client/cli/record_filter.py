"""Filters of lists by the fields that a list has: `FIELD=VALUE`, `FIELD!=VALUE` and `FIELD~TEXT`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Annotated, Any

import typer

from gpu_recovery_client.texts import tr

FORM = re.compile(r"(?P<field>[a-z_][a-z0-9_.]*)(?P<operator>!=|=|~)(?P<value>.*)", re.DOTALL)
Filters = Annotated[
    list[str] | None,
    typer.Option(
        "--filter",
        metavar="FIELD=VALUE",
        help="Only records with this value, in which * stands for any text; != for other values, ~ for a part."
        " May repeat. The fields are those of --json.",
    ),
]


@dataclass(frozen=True, slots=True)
class Filter:
    """One condition on a field of a record. A dot separates the names of nested fields."""

    field: str
    operator: str
    value: str

    def accepts(self, record: Mapping[str, Any]) -> bool:
        """Return whether the record meets the condition. A record without the field has the value ""."""
        found = _text(_member(record, self.field))
        if self.operator == "~":
            return self.value.casefold() in found.casefold()
        return fnmatchcase(found, self.value) is (self.operator == "=")


def filters_of(texts: Sequence[str] | None) -> Callable[[Mapping[str, Any]], bool]:
    """Return the condition that all filters together are.

    Raises:
        typer.BadParameter: a filter has another form.
    """
    filters = [_parsed(text) for text in texts or ()]
    return lambda record: all(one.accepts(record) for one in filters)


def _parsed(text: str) -> Filter:
    spelt = FORM.fullmatch(text)
    if spelt is None:
        message = tr("{text} is not FIELD=VALUE, FIELD!=VALUE or FIELD~TEXT", text=repr(text))
        raise typer.BadParameter(message, param_hint="--filter")
    return Filter(spelt["field"], spelt["operator"], spelt["value"])


def _member(record: Mapping[str, Any], path: str) -> Any:
    value: Any = record
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _text(value: Any) -> str:
    """Return a value as the JSON has it, without quotes; lists and objects with their members."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return ",".join(value)
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
