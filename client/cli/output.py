"""What a verb prints, text for people and JSON for programs, and the codes it ends with."""

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
    """The width to fold to; None when the output goes to a file or another program."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def now() -> datetime:
    """The current time, the only clock of the command line."""
    return datetime.now(UTC)


def pause(seconds: float) -> None:
    """Wait, for what another machine does."""
    time.sleep(seconds)


def say(text: str) -> None:
    """One line for people beside what is printed: on stderr, so that a program that reads stdout never meets it."""
    typer.echo(cleaned(text), err=True)


def print_json(value: Any) -> None:
    """One JSON document; characters beyond ASCII are escaped, so no locale can spoil it."""
    typer.echo(json.dumps(value, indent=2))


def print_view(view: Any, text: Callable[[], str], as_json: bool) -> None:
    """Print a view of the API as JSON, or else as the text that `text` returns."""
    if as_json:
        print_json(view)
    else:
        typer.echo(text(), nl=False)


def is_complete(unreadable: Iterable[str]) -> bool:
    """Whether the API could read every record it was asked for; those that it could not are named on stderr."""
    missed = list(unreadable)
    for one in missed:
        typer.echo(f"gpu-recovery: not shown, as it cannot be read: {printable(one)}", err=True)
    return not missed
