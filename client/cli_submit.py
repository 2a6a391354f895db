"""`gpu-recovery submit`: a job from options, from a JSON document, or from a document with options on top."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from . import render
from .output import AsJson, print_json

REQUIRED = {
    "workload": "--workload",
    "nnodes": "--nnodes",
    "n_gpus_per_node": "--gpus-per-node",
    "task_definition": "--task-definition",
}


def submit(
    context: typer.Context,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="COMMAND", help="What the ranks run; begin it with --.")
    ] = None,
    file: Annotated[str | None, typer.Option("--file", "-f", help="A JSON document; '-' reads stdin.")] = None,
    workload: Annotated[str | None, typer.Option(help="What kind of work; the job's id begins with it.")] = None,
    nnodes: Annotated[int | None, typer.Option(help="How many instances.")] = None,
    gpus_per_node: Annotated[int | None, typer.Option(help="How many GPUs on each.")] = None,
    task_definition: Annotated[str | None, typer.Option(help="ECS family, or family:revision.")] = None,
    container: Annotated[str | None, typer.Option(help="The container whose exit decides.")] = None,
    env: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="For every rank; may repeat.")] = None,
    user: Annotated[str | None, typer.Option(help="Who asks.")] = None,
    attempts_max: Annotated[int | None, typer.Option(help="How many counted attempts it may have.")] = None,
    max_runtime_s: Annotated[int | None, typer.Option(help="Seconds one attempt may run.")] = None,
    as_json: AsJson = False,
) -> None:
    """Put a training job in line. An option wins over the same field of --file."""
    given = {
        "workload": workload, "nnodes": nnodes, "n_gpus_per_node": gpus_per_node, "task_definition": task_definition,
        "container": container, "user": user, "attempts_max": attempts_max, "max_runtime_s": max_runtime_s,
        "command": list(command) if command else None,
    }  # fmt: skip
    spec = _document(file) if file else {}
    spec |= {key: value for key, value in given.items() if value is not None}
    if env:
        base = spec.get("env") or {}
        if not isinstance(base, dict):
            _usage("its field env is not an object, so --env cannot add to it", "--file")
        spec["env"] = base | dict(map(_variable, env))
    missing = [option for key, option in REQUIRED.items() if key not in spec]
    if missing:
        _usage(f"a job needs {', '.join(missing)}; give them, or their fields in --file")
    with context.obj.client() as client:
        view = client.submit(spec)
    if as_json:
        print_json(view)
    else:
        typer.echo(render.job_line(view), nl=False)


def _document(file: str) -> dict[str, Any]:
    """The JSON object in `file`, or on stdin for '-'."""
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
        document = json.loads(text)
    except OSError as error:
        _usage(f"{file} cannot be read: {error.strerror}", "--file")
    except ValueError as error:
        _usage(f"{file} is not JSON: {error}", "--file")
    if not isinstance(document, dict):
        _usage(f"{file} does not hold a JSON object", "--file")
    return document


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        _usage(f"{text!r} is not NAME=VALUE", "--env")
    return name, value


def _usage(message: str, hint: str | None = None) -> NoReturn:
    raise typer.BadParameter(message, param_hint=hint)
