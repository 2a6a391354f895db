"""Confirmation of commands that are hard to undo.

The question is asked only where a person can answer: standard input is a terminal. Scripts are never asked, so what
they did before goes on working. A command with --all changes records that it does not name, so a script must give
--yes.
"""

from __future__ import annotations

import sys

import typer

from gpu_recovery_client.texts import tr

YES, NO = ("y", "yes", "是"), ("", "n", "no", "否")
"""Answers to a question, in every language."""


def is_interactive() -> bool:
    """Return whether a person can answer a question."""
    return sys.stdin.isatty()


def confirm(question: str, yes: bool) -> None:
    """Ask on stderr and go on only if the answer is yes. `yes` answers in advance.

    Raises:
        typer.Abort: the answer is no.
    """
    if not yes and is_interactive():
        ask(question)


def ask(question: str) -> None:
    """Ask on stderr, in the user's language, until the answer is yes or no. An empty answer is no.

    Raises:
        typer.Abort: the answer is no, or the input has ended.
    """
    while True:
        text = typer.prompt(f"{question} {tr('[y/N]')}", default="", show_default=False, err=True)
        answer = str(text).strip().lower()
        if answer in YES:
            return
        if answer in NO:
            raise typer.Abort
        typer.echo(tr("Error: {message}", message=tr("answer y or n")), err=True)


def confirm_all(question: str, yes: bool) -> None:
    """Like `confirm`, but a script must have given --yes.

    Raises:
        typer.BadParameter: the input is not a terminal.
    """
    if not yes and not is_interactive():
        raise typer.BadParameter(tr("needs --yes, because the input is not a terminal"), param_hint="--all")
    confirm(question, yes)
