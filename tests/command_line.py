"""The command line as typer builds it, once per process: building takes 25 ms, and tests look at it for each line."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import typer
from gpu_recovery_client.cli import app

import simulator.__main__ as simulator


@cache
def command() -> Any:
    """Return the command `gpu-recovery` with all of its verbs. No test changes it."""
    return typer.main.get_command(app.app)


def options_of(verb: Any, words: Sequence[str]) -> set[str]:
    """Return the options of a verb; of `simulate`, which passes its arguments on, those of the first word after it."""
    if verb.name != "simulate" or not words:
        return {option for parameter in verb.params for option in parameter.opts}
    [verbs] = [action for action in simulator.build_parser()._actions if isinstance(action.choices, dict)]
    return {option for action in verbs.choices[words[0]]._actions for option in action.option_strings}
