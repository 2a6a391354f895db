"""Builds a job specification from a document, from options, or from both."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

import typer

from gpu_recovery_client.job_document import Document, read_document
from gpu_recovery_client.texts import tr

REQUIRED = {"workload": "--workload", "nnodes": "--nnodes", "n_gpus_per_node": "--gpus-per-node"}
"""Fields that every specification needs, and their options."""
BY_BACKEND = {
    "ecs": {"task_definition": "--task-definition"},
    "ray": {"entrypoint": "--entrypoint"},
}
"""Further required fields of each backend, and their options."""
KNOWN = {*REQUIRED, "task_definition", "entrypoint"}
"""Fields that are never taken for a mistyped field."""


def job_spec(
    document: Document | None, fields: dict[str, Any], env: list[str] | None
) -> tuple[dict[str, Any] | str, str]:
    """Return the request body and its media type; a document that no option changes is sent as it was written.

    Args:
        document: the job as JSON or YAML, if there is one.
        fields: the fields given as options; a field wins over the same field of the document.
        env: variables as NAME=VALUE, added to those of the document.

    Raises:
        typer.BadParameter: a required field is missing, or a variable cannot be used.
    """
    spec = {**(document.fields if document else {}), **fields}
    if env:
        base = spec.get("env") or {}
        if not isinstance(base, dict):
            usage_error(tr("the field env is not an object, so --env cannot add to it"), "--file")
        spec["env"] = base | dict(map(_variable, env))
    backend = spec.get("backend") or "ecs"
    has_command = spec.get("template") is not None or not isinstance(backend, str)  # the API checks these
    needed = REQUIRED | ({} if has_command else BY_BACKEND.get(backend, {}))
    missing = {key: option for key, option in needed.items() if key not in spec}
    if missing:
        _refuse_incomplete(spec, missing)
    if document is not None and not fields and not env:
        return document.text, document.kind
    return spec, ""


def job_document(names: list[str], file: str | None) -> Document | None:
    """Return the document of FILE or --file, or None. A command without `--` before it gets an error that says so.

    Raises:
        typer.BadParameter: the file cannot be used, or both are given.
    """
    if file is not None and not names:
        return read_document(file, "--file")
    if not names:
        return None
    if len(names) > 1 or (names[0] != "-" and not Path(names[0]).exists()):
        usage_error(tr("{name} is no file; the command of the ranks begins after --", name=repr(names[0])), "FILE")
    if file is not None:
        usage_error(tr("give the job in FILE or in --file, not in both"), "--file")
    return read_document(names[0], "FILE")


def usage_error(message: str, hint: str | None = None) -> NoReturn:
    """Raise typer.BadParameter for the parameter `hint`."""
    raise typer.BadParameter(message, param_hint=hint)


def _refuse_incomplete(spec: dict[str, Any], missing: dict[str, str]) -> NoReturn:
    """Raise a usage error that names the missing fields, and the fields of the document that may be meant."""
    message = tr(
        "a job needs {options}; give them, or their fields in FILE or --file", options=", ".join(missing.values())
    )
    for key in spec:
        meant = get_close_matches(key, missing, 1)
        if meant and key not in KNOWN:
            message += tr(". Did you mean {meant} by {key}?", meant=meant[0], key=repr(key))
    usage_error(message)


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        usage_error(tr("{text} is not NAME=VALUE", text=repr(text)), "--env")
    return name, value
