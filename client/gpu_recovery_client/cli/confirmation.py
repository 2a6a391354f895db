"""Confirmation of commands that are hard to undo.

The question is asked only where a person can answer: standard input is a terminal. Scripts are never asked, so what
they did before goes on working. A command with --all changes records that it does not name, so a script must give
--yes.
"""

from __future__ import annotations

import sys

import typer

from gpu_recovery_client.texts import tr


def is_interactive() -> bool:
    """Return whether a person can answer a question."""
    return sys.stdin.isatty()


def confirm(question: str, yes: bool) -> None:
    """Ask on stderr and go on only if the answer is yes. `yes` answers in advance.

    Raises:
        typer.Abort: the answer is no.
    """
    if not yes and is_interactive():
        typer.confirm(question, abort=True, err=True)


def confirm_all(question: str, yes: bool) -> None:
    """Like `confirm`, but a script must have given --yes.

    Raises:
        typer.BadParameter: the input is not a terminal.
    """
    if not yes and not is_interactive():
        raise typer.BadParameter(tr("needs --yes, because the input is not a terminal"), param_hint="--all")
    confirm(question, yes)
