"""`gpu-recovery simulate`: the simulator of the repository, imported when it is called."""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import Any, NoReturn

import typer

from gpu_recovery_client.cli.output import USAGE
from gpu_recovery_client.cli.simulator_texts import HelpText, sentence
from gpu_recovery_client.errors import ClientError
from gpu_recovery_client.texts import tr

PASSED_ON = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
"""Settings of click that pass every argument on to the simulator."""


class Parser(argparse.ArgumentParser):
    """Parser of the simulator that prints its help and its errors like every verb, in the user's language."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **{"formatter_class": HelpText, **named})

    def format_usage(self) -> str:
        """Return the line with the usage."""
        return super().format_usage().replace("usage: ", tr("Usage: "), 1)

    def format_help(self) -> str:
        """Return the help."""
        return super().format_help().replace("usage: ", tr("Usage: "), 1)

    def error(self, message: str) -> NoReturn:
        """Print the usage and the error, and end with exit code 2."""
        self.exit(USAGE, f"{self.format_usage()}{tr('Error: {message}', message=sentence(message))}\n")


def simulate(context: typer.Context) -> None:
    """Run the product under a virtual clock. Its verbs are run, play, explore, goodput, contract, queue. See --help."""
    try:
        simulator = import_module("simulator.__main__")
    except ModuleNotFoundError as error:
        sentence = tr("the simulator runs from the repository, after `make setup` ({error})", error=error)
        raise ClientError(sentence) from error
    raise typer.Exit(simulator.main(context.args, "gpu-recovery simulate", Parser, error_sentence))


def error_sentence(error: Exception) -> str:
    """Return an error of the simulator's options or files in the user's language."""
    if isinstance(error, OSError):
        return tr(
            "Error: {message}", message=tr("{file} cannot be read: {error}", file=error.filename, error=error.strerror)
        )
    return tr("Error: {message}", message=sentence(str(error)))
