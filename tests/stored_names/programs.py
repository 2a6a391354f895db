"""What people type and what training programs import: commands, options, exit statuses, the Python API."""

from __future__ import annotations

import argparse
import ast
import inspect
import textwrap
import tomllib
from collections.abc import Iterator
from typing import Any

import gpu_recovery_client
import typer
from gpu_recovery.core.health_check import EXIT_CODES as READ_OF_CHECKS
from gpu_recovery_agent.nvml_recorder import NO_NVML
from gpu_recovery_agent.rank.suspension import SUSPENDED, TIMED_OUT
from gpu_recovery_agent.rank.wrapper import MISUSED
from gpu_recovery_agent.reporter import DENIED, DO_NOT_RESTART
from gpu_recovery_client import diagnosis, training
from gpu_recovery_client.cli import app as cli_app
from gpu_recovery_client.cli import output
from gpu_recovery_run import memory_checkpoint

import simulator.__main__ as simulator
from health_check.remedies import EXIT_CODES as OF_CHECKS
from tests.stored_names.spellings import ROOT

PUBLIC = {
    "gpu_recovery_client": gpu_recovery_client,
    "gpu_recovery_client.training": training,
    "gpu_recovery_client.diagnosis": diagnosis,
    "gpu_recovery_run.memory_checkpoint": memory_checkpoint,
}
"""The modules that users import. In the image of a training all but the first are in the package `gpu_recovery_run`."""
PROJECTS = ("pyproject.toml", "agent/pyproject.toml", "agent/run/pyproject.toml")
"""The projects with console scripts."""


def commands() -> dict[str, Any]:
    """The verbs of `gpu-recovery` and of the simulator with their arguments and options, and the console scripts."""
    return {
        "gpu-recovery": dict(_verbs(typer.main.get_command(cli_app.app), "gpu-recovery")),
        "simulator": dict(_parsers(simulator.build_parser(), "simulate")),
        "scripts": sorted([each for project in PROJECTS for each in _scripts(project)]),
    }


def exit_statuses() -> dict[str, Any]:
    """What the programs exit with, and what the exit codes of a health check mean to each side."""
    return {
        "gpu-recovery": {"failed": output.FAILED, "usage": output.USAGE},
        "gpu-recovery-agent": {"denied": DENIED, "not alone": DO_NOT_RESTART},
        "gpu-recovery-run": {"suspended": SUSPENDED, "no progress": TIMED_OUT, "misused": MISUSED},
        "gpu-recovery-record": {"no NVML": NO_NVML},
        "go_suspend": training.SUSPENDED,
        "health check": {outcome.value: code for outcome, code in OF_CHECKS.items()},
        "health check as read": {str(code): outcome.value for code, outcome in READ_OF_CHECKS.items()},
    }


def python_api() -> dict[str, dict[str, Any]]:
    """What each public module exports: signatures without annotations, the members of classes, values."""
    return {name: {each: _shape(getattr(module, each)) for each in module.__all__} for name, module in PUBLIC.items()}


def _verbs(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    yield (
        path,
        {
            "arguments": [_argument(one) for one in command.params if one.param_type_name == "argument"],
            "options": sorted(_option(one) for one in command.params if one.param_type_name == "option"),
        },
    )
    for name, inner in getattr(command, "commands", {}).items():
        yield from _verbs(inner, f"{path} {name}")


def _argument(one: Any) -> str:
    return (
        (one.metavar or one.name.upper()) + ("..." if one.nargs == -1 else "") + (" (needed)" if one.required else "")
    )


def _option(one: Any) -> str:
    takes = "" if one.is_flag else " VALUE..." if one.multiple else " VALUE"
    return "/".join([*one.opts, *one.secondary_opts]) + takes + (" (needed)" if one.required else "")


def _parsers(parser: argparse.ArgumentParser, path: str) -> Iterator[tuple[str, Any]]:
    shown = sorted(
        "/".join(one.option_strings) or one.dest for one in parser._actions if not one.choices or one.option_strings
    )
    yield path, shown
    for action in parser._actions:
        if isinstance(action.choices, dict):
            for name, inner in action.choices.items():
                yield from _parsers(inner, f"{path} {name}")


def _scripts(file: str) -> list[str]:
    return list(tomllib.loads((ROOT / file).read_text(encoding="utf-8"))["project"]["scripts"])


def _shape(thing: Any) -> Any:
    if inspect.isclass(thing):
        own = [kind for kind in thing.__mro__ if kind.__module__.startswith("gpu_recovery")]
        members = {name: value for kind in reversed(own) for name, value in vars(kind).items() if name[0] != "_"}
        members |= dict.fromkeys(sorted({name for kind in own for name in _assigned(kind)} - set(members)))
        base = next(kind.__name__ for kind in thing.__mro__ if kind.__module__ == "builtins")
        made = _signature(thing) if any("__init__" in vars(kind) for kind in own) else "as its base"
        return {"is": base, "made": made, **{name: _shape(value) for name, value in members.items()}}
    if isinstance(thing, staticmethod | classmethod):
        return f"{type(thing).__name__} {_signature(thing.__func__)}"
    if callable(thing):
        return _signature(thing)
    return thing if isinstance(thing, str | int | float) else "attribute"


def _assigned(kind: type) -> Iterator[str]:
    """The public attributes that a class gives to `self`."""
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(kind)))):
        match node:
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()) if not name.startswith("_"):
                yield name


def _signature(thing: Any) -> str:
    """The parameters with their kinds and defaults; annotations name classes that may be renamed."""
    signature = inspect.signature(thing)
    parameters = [one.replace(annotation=one.empty) for one in signature.parameters.values()]
    return str(signature.replace(parameters=parameters, return_annotation=signature.empty))
