"""Output of a verb, text for a terminal and JSON for programs, and its exit codes."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from gpu_recovery_client.render.table import cleaned, printable

FAILED, USAGE = 1, 2
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, as the API answers.")]


def terminal_width() -> int | None:
    """Return the width to fold text to; None if the output goes to a file or another program."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def now() -> datetime:
    """Return the current time. The command line has no other clock."""
    return datetime.now(UTC)


def pause(seconds: float) -> None:
    """Wait."""
    time.sleep(seconds)


def say(text: str) -> None:
    """Print one line on stderr, where a program that reads stdout does not meet it."""
    typer.echo(cleaned(text), err=True)


def print_json(value: Any) -> None:
    """Print one JSON document. Characters beyond ASCII are escaped, so that every locale can print it."""
    typer.echo(json.dumps(value, indent=2))


def print_view(view: Any, text: Callable[[], str], as_json: bool) -> None:
    """Print a view of the API as JSON, or else as the text that `text` returns."""
    if as_json:
        print_json(view)
    else:
        typer.echo(text(), nl=False)


def is_complete(unreadable: Iterable[str]) -> bool:
    """Return whether the API could read every record; print each unreadable record on stderr."""
    missed = list(unreadable)
    for record in missed:
        typer.echo(f"gpu-recovery: not shown, as it cannot be read: {printable(record)}", err=True)
    return not missed
