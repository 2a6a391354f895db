"""A document that the user wrote, JSON or YAML: its text as it is, and what it says."""

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
BYTES_MAX = 262_144
"""What the API takes."""


@dataclass(frozen=True, slots=True)
class Document:
    """An object that somebody wrote down. `kind` is the media type of `text`."""

    text: str
    kind: str
    fields: dict[str, Any]


def read_document(file: str, hint: str) -> Document:
    """The document in `file`, or on stdin for '-'. BadParameter, with `hint`, if it cannot be read as one.

    The name's ending tells JSON from YAML; without one it is whichever it can be read as.
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
    found, fields = (_as_json if kind == JSON else _as_yaml if kind == YAML else _as_either)(file, text, hint)
    if not isinstance(fields, dict) or not all(isinstance(name, str) for name in fields):
        _usage(f"{file} does not hold an object of named fields", hint)
    return Document(text, found, fields)


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
