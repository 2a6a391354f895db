"""`gpu-recovery simulate`: the simulator of the repository, imported when it is called."""

from __future__ import annotations

import argparse
import re
from importlib import import_module
from typing import NoReturn

import typer

from gpu_recovery_client.cli.output import USAGE
from gpu_recovery_client.errors import ClientError
from gpu_recovery_client.texts import tr

PASSED_ON = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
"""Settings of click that pass every argument on to the simulator."""
PLAIN = {
    r"the following arguments are required: (?P<name>.*)": "{name} is needed",
    r"unrecognized arguments: (?P<words>.*)": "there are too many arguments: {words}",
    r"argument (?P<name>\S+): expected one argument": "{name} needs a value",
    r"argument (?P<name>\S+): invalid choice: (?P<value>.*) \(choose from (?P<choices>.*)\)": (
        "{name}: must be one of {choices}, not {value}"
    ),
    r"argument (?P<name>\S+): invalid (?:int|float) value: (?P<value>.*)": "{name}: must be a number, not {value}",
    r"argument (?P<name>\S+): seeds are written A\.\.B, not (?P<value>.*)": (
        "{name}: seeds are written A..B, not {value}"
    ),
    r"argument (?P<name>\S+): (?P<value>.*) holds no seed": "{name}: {value} holds no seed",
    r"argument (?P<name>\S+): must be a whole number, not (?P<value>.*)": "{name}: must be a whole number, not {value}",
    r"argument (?P<name>\S+): must be a whole number of at least 1, not (?P<value>.*)": (
        "{name}: must be a whole number of at least 1, not {value}"
    ),
    r"argument (?P<name>\S+): must be a time like (?P<example>\S+), not (?P<value>.*)": (
        "{name}: must be a time like {example}, not {value}"
    ),
    r"argument (?P<name>\S+): must be some of (?P<choices>.*), not (?P<value>.*)": (
        "{name}: must be some of {choices}, not {value}"
    ),
}
"""Texts by the patterns of the messages of the simulator and of argparse, for errors of the command line."""
SCENARIO = {
    r"(?P<name>.*) must be one of (?P<choices>.*), not (?P<value>.*)": "{name}: must be one of {choices}, not {value}",
    r"(?P<what>.*) has no (?P<name>'.*'); it may have (?P<known>.*)": "{what} has no {name}; it may have {known}",
    r"(?P<what>.*) needs (?P<name>'.*')": "{what} needs {name}",
}
"""Texts by the patterns of the messages about a scenario file."""


class Parser(argparse.ArgumentParser):
    """Parser of the simulator that prints its errors like every verb, in the user's language."""

    def error(self, message: str) -> NoReturn:
        """Print the usage and the error, and end with exit code 2."""
        usage = self.format_usage().replace("usage: ", tr("Usage: "), 1)
        self.exit(USAGE, f"{usage}{tr('Error: {message}', message=_plain(message, PLAIN))}\n")


def simulate(context: typer.Context) -> None:
    """Run the product under a virtual clock. The verbs are run, play, explore and goodput; each has --help."""
    try:
        simulator = import_module("simulator.__main__")
    except ModuleNotFoundError as error:
        sentence = tr("the simulator runs from the repository, after `make setup` ({error})", error=error)
        raise ClientError(sentence) from error
    raise typer.Exit(simulator.main(context.args, "gpu-recovery simulate", Parser, error_sentence))


def error_sentence(error: Exception) -> str:
    """Return the error of a file that the simulator could not read, in the user's language."""
    if isinstance(error, OSError):
        sentence = tr("{file} cannot be read: {error}", file=error.filename, error=error.strerror)
    else:
        sentence = _plain(str(error), SCENARIO)
    return tr("Error: {message}", message=sentence)


def _plain(message: str, texts: dict[str, str]) -> str:
    for pattern, text in texts.items():
        found = re.fullmatch(pattern, message, re.DOTALL)
        if found is not None:
            return tr(text, **found.groupdict())
    return message
