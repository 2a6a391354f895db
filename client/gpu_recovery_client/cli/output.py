"""Output of a verb: text for a terminal, JSON, YAML or names for programs, and its exit codes."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from enum import StrEnum
from importlib import import_module
from typing import Annotated, Any

import typer

from gpu_recovery_client.render.text import cleaned, printable
from gpu_recovery_client.texts import tr

FAILED, USAGE = 1, 2


class Format(StrEnum):
    """Formats of the option -o."""

    JSON = "json"
    YAML = "yaml"
    WIDE = "wide"
    NAME = "name"


DOCUMENTS = (Format.JSON, Format.YAML, Format.NAME)
"""Formats that are made of the answer of the API, not of its text."""
AsJson = Annotated[bool, typer.Option("--json", help="Print the answer of the API as JSON; short for -o json.")]
OutputFormat = Annotated[
    Format | None,
    typer.Option(
        "--output",
        "-o",
        help="json or yaml: the answer of the API; wide: every column, no line folded; name: ids only.",
    ),
]
LISTS = ("jobs", "instances", "tokens", "waiting", "running")
"""Members of an answer that hold records, in the order in which -o name prints them."""
IDS = ("job_id", "instance_id", "token_id")
"""Members of a record that name it."""
_format: ContextVar[Format | None] = ContextVar("format", default=None)


def use_format(chosen: Format | None) -> None:
    """Print all further output in this format; None for text that fits the terminal."""
    _format.set(chosen)


def is_wide() -> bool:
    """Return whether the text shows every column."""
    return _format.get() is Format.WIDE


def terminal_width() -> int | None:
    """Return the width that the text must fit into; None if it need not, as in a file."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() and not is_wide() else None


def now() -> datetime:
    """Return the current time. The command line has no other clock."""
    return datetime.now(UTC)


def pause(seconds: float) -> None:
    """Wait."""
    time.sleep(seconds)


def say(text: str) -> None:
    """Print one line on stderr, where a program that reads stdout does not meet it."""
    typer.echo(cleaned(text), err=True)


def print_document(value: Any) -> None:
    """Print an answer of the API in the format in use, which is JSON by default.

    In JSON, characters beyond ASCII are escaped, so that every locale can print the document.

    Raises:
        typer.BadParameter: the format is NAME, and the answer names no records.
    """
    if _format.get() is Format.YAML:
        text = import_module("yaml").safe_dump(value, sort_keys=False, allow_unicode=True, default_flow_style=False)
        typer.echo(text, nl=False)
    elif _format.get() is Format.NAME:
        for name in _names(value):
            typer.echo(printable(name))
    else:
        typer.echo(json.dumps(value, indent=2))


def print_view(view: Any, text: Callable[[], str], as_json: bool) -> None:
    """Print a view of the API as a document, or else as the text that `text` returns. A terminal gets colours."""
    if as_json:
        print_document(view)
    elif sys.stdout.isatty():
        import_module("gpu_recovery_client.cli.colours").print_coloured(text())
    else:
        typer.echo(text(), nl=False)


def is_complete(unreadable: Iterable[str]) -> bool:
    """Return whether the API could read every record; print each unreadable record on stderr."""
    missed = list(unreadable)
    for record in missed:
        say(tr("gpu-recovery: not shown, because the record cannot be read: {record}", record=record))
    return not missed


def _names(value: Any) -> list[str]:
    if not isinstance(value, Mapping) or (not (names := list(_ids(value))) and not _has_list(value)):
        raise no_names()
    return names


def no_names() -> typer.BadParameter:
    """Return the error for -o name at a verb that prints no records."""
    message = tr("name is for verbs that print jobs, instances or tokens")
    return typer.BadParameter(message, param_hint="--output")


def _has_list(view: Mapping[str, Any]) -> bool:
    return any(isinstance(view.get(key), list) for key in LISTS)


def _ids(view: Mapping[str, Any]) -> Iterator[str]:
    """Yield the ids of the records of an answer, or the id of the one record that the answer is."""
    if isinstance(view.get("job"), Mapping):  # the answer of `explain`
        yield from _ids(view["job"])
        return
    lists = [view[key] for key in LISTS if isinstance(view.get(key), list) and _is_of_records(view[key])]
    if lists:
        for record in (record for records in lists for record in records):
            yield from _ids(record)
        return
    yield from [str(view[key]) for key in IDS if isinstance(view.get(key), str)][:1]


def _is_of_records(items: list[Any]) -> bool:
    return bool(items) and all(isinstance(item, Mapping) for item in items)
