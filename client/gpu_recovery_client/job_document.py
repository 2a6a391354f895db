"""Reads a document of the user, JSON or YAML: its text as written, and its fields."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import typer
import yaml

JSON, YAML = "application/json", "application/yaml"
KINDS = {".json": JSON, ".yaml": YAML, ".yml": YAML}
"""Media types by the suffix of a file name."""
BYTES_MAX = 262_144
"""Largest document that the API accepts, in bytes."""


@dataclass(frozen=True, slots=True)
class Document:
    """A document of the user. `kind` is the media type of `text`."""

    text: str
    kind: str
    fields: dict[str, Any]


def read_document(file: str, hint: str) -> Document:
    """Read the document in `file`, or on stdin for '-'.

    The suffix of the name decides between JSON and YAML. Without a known suffix, JSON is tried first, then YAML.

    Args:
        file: path, or '-'.
        hint: the parameter that an error names.

    Raises:
        typer.BadParameter: the document cannot be read.
    """
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        _usage(f"{file} cannot be read: {error.strerror}", hint)
    if len(data) > BYTES_MAX:
        _usage(f"{file} has {len(data):,} bytes; {BYTES_MAX:,} are accepted", hint)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        _usage(f"{file} is not UTF-8: {error.reason} at byte {error.start}", hint)
    kind = KINDS.get(Path(file).suffix.lower())
    kind_found, fields = (_as_json if kind == JSON else _as_yaml if kind == YAML else _as_either)(file, text, hint)
    if not isinstance(fields, dict) or not all(isinstance(name, str) for name in fields):
        _usage(f"{file} does not hold an object of named fields", hint)
    return Document(text, kind_found, fields)


def _as_json(file: str, text: str, hint: str) -> tuple[str, Any]:
    try:
        return JSON, json.loads(text)
    except (ValueError, RecursionError) as error:
        _usage(f"{file} is not JSON: {error}", hint)


def _as_yaml(file: str, text: str, hint: str) -> tuple[str, Any]:
    try:
        return YAML, yaml.safe_load(text)
    except yaml.YAMLError as error:
        _usage(f"{file} is not YAML: {' '.join(str(error).split())}", hint)
    except (ValueError, RecursionError) as error:
        _usage(f"{file} is not YAML: {error}", hint)


def _as_either(file: str, text: str, hint: str) -> tuple[str, Any]:
    try:
        return JSON, json.loads(text)
    except (ValueError, RecursionError) as error:
        kind, fields = _as_yaml(file, text, hint) if text.strip() else (JSON, None)
        if not isinstance(fields, dict):
            _usage(f"{file} is not JSON: {error}; nor is it YAML with named fields", hint)
        return kind, fields


def _usage(message: str, hint: str) -> NoReturn:
    raise typer.BadParameter(message, param_hint=hint)
