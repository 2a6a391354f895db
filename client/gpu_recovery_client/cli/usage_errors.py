"""Usage errors of the command line: the texts of typer and pydantic in plain words and in the user's language."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer

from gpu_recovery_client.cli.output import FAILED, USAGE
from gpu_recovery_client.render.text import printable
from gpu_recovery_client.texts import tr

UsageError: Any = typer.BadParameter.__mro__[1]
"""Base class of usage errors, which typer may bring with it or take from click."""
PLAIN = {
    r"No such command '(?P<name>.*)'\. Did you mean (?P<others>.*)\?": (
        "there is no verb {name}; did you mean {others}?"
    ),
    r"No such command '(?P<name>.*)'\.": "there is no verb {name}",
    r"Missing command\.": "a verb is missing",
    r"Got unexpected extra argument\(s\) \((?P<words>.*)\)": "there are too many arguments: {words}",
    r"Option '(?P<name>.*)' requires an argument\.": "{name} needs a value",
    r"Option '(?P<name>.*)' does not take a value\.": "{name} takes no value",
}
"""Our texts by the patterns of typer's messages. Their names in braces are the groups of the pattern."""
AFTER_THE_VERB = ("-o", "--output", "--json")
"""Options of verbs that people also try before the verb."""


@contextmanager
def plain_usage_errors() -> Iterator[None]:
    """Context that prints usage errors and the end of a question on stderr.

    Raises:
        typer.Exit: USAGE after a usage error, FAILED after the answer no.
    """
    try:
        yield
    except typer.Abort as stop:
        typer.echo(tr("Stopped; nothing was changed."), err=True)
        raise typer.Exit(FAILED) from stop
    except UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            raise  # it prints the help
        for line in usage_lines(error):
            typer.echo(line, err=True)
        raise typer.Exit(USAGE) from error


def usage_lines(error: Any) -> list[str]:
    """Return the lines of a usage error: how the command is called, where its help is, and what is wrong."""
    context = error.ctx
    sentence = tr("Error: {message}", message=printable(_message(error)))
    if context is None:
        return [sentence]
    command = f"{context.command_path} {context.help_option_names[0]}" if context.help_option_names else ""
    hint = [tr("Help: {command}", command=command)] if command else []
    return [context.get_usage(), *hint, sentence]


def _message(error: Any) -> str:
    kind = type(error).__name__
    if kind == "MissingParameter":
        return _missing(error.param)
    if kind == "NoSuchOption":
        return _no_such_option(error)
    if kind == "BadParameter":
        named = _name_of(error)
        sentence = _expected(error) if type(error.__cause__).__name__ == "ValidationError" else error.message
        return f"{named}: {sentence}" if named else str(sentence)
    for pattern, text in PLAIN.items():
        found = re.fullmatch(pattern, error.message, re.DOTALL)
        if found is not None:
            others = {"others": found["others"].replace("'", "")} if "others" in found.groupdict() else {}
            return tr(text, **found.groupdict() | others) if found.groupdict() else tr(text)
    return str(error.format_message())


def _missing(param: Any) -> str:
    values = {"name": _name_of_parameter(param)}
    choices = _choices(param)
    if choices:
        return tr("{name} is needed: one of {choices}", **values, choices=choices)
    return tr("{name} is needed", **values)


def _no_such_option(error: Any) -> str:
    name, context = str(error.option_name), error.ctx
    root = context.find_root() if context is not None else None
    if root is not None and root is context and name in AFTER_THE_VERB:
        return tr("{name} goes after the verb", name=name)
    if root is not None and root is not context and any(name in param.opts for param in root.command.params):
        return tr("{name} goes before the verb", name=name)
    similar = sorted(error.possibilities or (), key=lambda option: (not option.startswith(name), option))
    if similar:
        return tr("there is no option {name}; did you mean {others}?", name=name, others=", ".join(similar))
    return tr("there is no option {name}", name=name)


def _expected(error: Any) -> str:
    """Return what a value must be that pydantic has refused."""
    param = error.param
    kind, info = param.type_descriptor, param.type_descriptor.parameter_info
    values = {"value": repr(error.__cause__.errors()[0]["input"]), "least": info.min, "most": info.max}
    choices = _choices(param)
    if choices:
        return tr("must be one of {choices}, not {value}", choices=choices, value=values["value"])
    if not kind.is_ranged:
        return tr("must be a whole number, not {value}", value=values["value"])
    if info.max is None:
        return tr("must be a whole number of at least {least}, not {value}", **values)
    return tr("must be a whole number from {least} to {most}, not {value}", **values)


def _choices(param: Any) -> str:
    """Return the values that a parameter may have; "" if they are no fixed values."""
    return ", ".join(str(getattr(one, "value", one)) for one in param.type_descriptor.choices or ())


def _name_of(error: Any) -> str:
    """Return the option or argument that an error is about; "" if the error names none."""
    if error.param_hint is not None:
        return error.param_hint if isinstance(error.param_hint, str) else ", ".join(error.param_hint)
    return "" if error.param is None else _name_of_parameter(error.param)


def _name_of_parameter(param: Any) -> str:
    if param.opts and param.opts[0].startswith("-"):
        return ", ".join(param.opts)
    return str(param.metavar or param.name.upper()).strip("[]{}.")
