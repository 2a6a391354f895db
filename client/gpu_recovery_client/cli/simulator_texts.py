"""Texts of the simulator and of argparse for the user: the forms of their messages, and their help in two languages.

A form is the English message with a name in braces for each value. The tables of the other languages have the forms
as keys. The simulator itself writes English.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from functools import cache
from importlib import import_module

from gpu_recovery_client.texts import Language, language, tr

ARGPARSE = {
    "the following arguments are required: {name}": "{name} is needed",
    "unrecognized arguments: {words}": "there are too many arguments: {words}",
    "argument {name}: expected one argument": "{name} needs a value",
    "argument {name}: not allowed with argument {other}": "{name} cannot be given together with {other}",
    "argument {name}: invalid choice: {value} (choose from {choices})": "{name}: must be one of {choices}, not {value}",
    "argument {name}: invalid int value: {value}": "{name}: must be a number, not {value}",
    "argument {name}: invalid float value: {value}": "{name}: must be a number, not {value}",
    "argument {name}: {value} is no range of seeds as 1..5": "{name}: seeds are written A..B, not {value}",
    "argument {name}: {value} is an empty range": "{name}: {value} holds no seed",
    "argument {name}: {problem}": "{name}: {problem}",
    "{name} must be one of {choices}, not {value}": "{name}: must be one of {choices}, not {value}",
}
"""Texts of the command line by the forms of the messages that mean the same."""
VALUES = (
    "seeds are written A..B, not {value}",
    "{value} holds no seed",
    "must be a whole number, not {value}",
    "must be a whole number of at least {least}, not {value}",
    "must be a time like {example}, not {value}",
    "must be some of {choices}, not {value}",
)
"""Forms of the messages about the value of an option."""
FILES = (
    "the job has no recovery contract: give max_down_minutes or max_lost_minutes",
    "the simulator takes jobs on ECS with at most {number} instances",
    "the simulator takes jobs of a fixed number of instances here: give one number as nnodes",
    "no incident occurred: give more seeds",
    "--spares must be at least 0, not {value}",
    "{what} has no {name}; it may have {known}",
    "there is no policy setting {name}",
    "policy {name} must be of type {kind}, not {value}",
    "policy {name} must be at least {least}, not {value}",
    "policy {name} must be at most {most}, not {value}",
    "policy suspect_s, unreachable_s and heartbeat_stale_s must not decrease in this order",
    "policy suspect_after must be at least {least}: a single failure is not a repetition",
    "policy command_lease_s must be at least {least}, longer than any function runs",
    "policy {name} is the former name of {other}: give only {other_too}",
    "must be an object",
    "is not a limit; the limits are {known}",
    "must be an object of user/PRIORITY/group and a number",
    "must be written user/PRIORITY/group",
    "the priority must be * or one of {choices}",
    "{path} is no TOML: {error}",
    "the table has no section {name}",
    "{name} must be a table with value, unit, mark and source",
    "{name} has an entry {key} that nothing reads",
    "{key} must be a text that says something",
    "{key} must be one of {choices}, not {value}",
    "{key} must be a number that is not negative, not {value}",
    "{name} has one end of a range and not the other",
    "{value} is not between {low} and {high}",
    "{name} is an assumption without a range to sweep",
    "{name} has no causes",
    "{name} must be more than 0",
    "there is no mix {name}",
    "{name} is missing",
    "{name} is read by nothing",
    "{name} is a share and cannot be {value}",
    "there is no such condition",
    "there is no profile {name}; there are {known}",
    "it must be a list of events",
    "it must be a list of incidents, or an object with the list `incidents`",
    "it must be an object",
    "it has not the form of the trace ({error})",
    "{kind} without a begin, or no event of the trace",
    "there is no incident in it",
    "it has not as many fields as the header",
    "{name} is missing; an incident has {known}",
    "{name} is not known; an incident has {known}",
    "all times must be seconds, or all must be dates",
    "{name} must be seconds since the run began or a date as {example}",
    "{name} must be a time as `at` is: seconds, or a date",
    "'until' is before 'at'",
    "'until' is before 'since'",
    "'node' and 'cause' must not be empty",
    "a host that is gone has the cure 'replace', not {value}",
    "{path} names {number} nodes, and the job has {instances}: see --instances",
    "--instances must be at least 1",
    "--legs must be at least 1, and 1 with --models: only the product's own runs are cut",
    "--recorded-repairs needs --failures and --models: the product's own runs replace machines",
    "--days must be more than 0 and at most {most}, the profile's",
    "{number} failures are too few for {legs} legs",
    "there is no calm in which it could be cut",
    "the recovery that began in hour {hour} was not over at the end of its leg",
    "the product takes no such job: {error}",
    "{path} holds no job",
    "{path} has no job of {least} s or more in the {days} days from {first}",
    "{path} has no column {names}",
    "the largest job wants {largest} GPUs, and there are {gpus}",
    "{name} has no {key}",
    "{what} needs {name}",
    "a setting is written NAME=VALUE, not {value}",
    "{path} cannot be read as a policy: {error}",
    "it is no JSON: {error}",
    "it does not describe records of gpu-recovery",
    "version {value} of the records is unknown; this release reads {known}",
    "version {value} of the replay facts is unknown",
    "there is no event in it",
    "there are records in this folder already",
    "{name} must be a time",
)
"""Forms of the messages about files, and about options that do not fit together. A general form is after others."""
KINDS = re.compile(r"(?P<help>.+): (?P<kinds>\w+(?:, \w+)+)")
"""Help of an option that lists values of the code."""
PLACE = re.compile(
    r"(?P<name>fault \S+|--\w+ \S+|\S+?)(?:,? (?P<kind>line|incident) (?P<number>\d+))?: (?P<rest>.+)", re.DOTALL
)
"""The place of an error before its message: `case.toml: …`, `list.csv, line 3: …`, `fault gpu: …`."""


def sentence(message: str) -> str:
    """Return a message of the simulator or of argparse in the user's language.

    A message without a known form stays as it is: it is a message of the operating system or of a library.
    """
    known = _matched(message, ARGPARSE)
    if known is not None:
        return known
    place = PLACE.fullmatch(message)
    if place is not None:
        return tr("{name}: {problem}", name=_place(place), problem=sentence(place["rest"]))
    return _matched(message, {form: form for form in (*VALUES, *FILES)}) or message


def _place(found: re.Match[str]) -> str:
    name, kind, number = found["name"], found["kind"], found["number"]
    if kind is None:
        return name
    if kind == "line":
        return tr("{name}, line {number}", name=name, number=number)
    return tr("{name}, incident {number}", name=name, number=number)


def _matched(message: str, texts: Mapping[str, str]) -> str | None:
    for form, text in texts.items():
        found = _pattern(form).fullmatch(message)
        if found is not None:
            values = {
                name: sentence(value) if name == "problem" else value for name, value in found.groupdict().items()
            }
            return tr(text, **values)
    return None


@cache
def _pattern(form: str) -> re.Pattern[str]:
    """Return the pattern of a form: a name in braces stands for any text."""
    parts = re.split(r"\{(\w+)\}", form)
    return re.compile(
        "".join(f"(?P<{one}>.+)" if at % 2 else re.escape(one) for at, one in enumerate(parts)), re.DOTALL
    )


class HelpText(argparse.HelpFormatter):
    """Help of the simulator in the user's language. A Chinese character is two columns wide."""

    def start_section(self, heading: str | None) -> None:
        """Begin a section, such as that of the options."""
        super().start_section(heading if heading is None else tr(heading))

    def add_text(self, text: str | None) -> None:
        """Add the description of a command."""
        super().add_text(text if text is None else tr(text))

    def _get_help_string(self, action: argparse.Action) -> str | None:
        names = KINDS.fullmatch(action.help or "")
        if names is None:
            return tr(action.help or "")
        return tr("{name}: {problem}", name=tr(names["help"]), problem=names["kinds"])

    def _split_lines(self, text: str, width: int) -> list[str]:
        if language() is Language.ENGLISH:
            return super()._split_lines(text, width)
        console = import_module("rich.console").Console(width=width)
        return [line.plain.rstrip() for line in import_module("rich.text").Text(text).wrap(console, width)]
