"""Reads a document of the user, JSON or YAML: its text as written, and its fields."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import typer
import yaml

from gpu_recovery_client.texts import tr

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


class PlainYaml(yaml.SafeLoader):  # type: ignore[misc]
    """Reads YAML as the API does: without repeated keys, anchors and aliases.

    Without this class a document that is sent unchanged and a document that an option changes would be read
    differently.
    """

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Read one value. Raises yaml.YAMLError for an anchor or an alias."""
        event = self.peek_event()
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise yaml.MarkedYAMLError(problem="anchors and aliases are not accepted", problem_mark=event.start_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        """Return an object. Raises yaml.YAMLError if a key is given twice."""
        seen = set[Any]()
        for key_node, _ in node.value:
            if isinstance(key_node, yaml.ScalarNode) and key_node.value in seen:
                problem = f"the key {key_node.value!r} is given twice"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key_node.start_mark)
            seen.add(key_node.value if isinstance(key_node, yaml.ScalarNode) else id(key_node))
        return super().construct_mapping(node, deep)


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
        _usage(tr("{file} cannot be read: {error}", file=file, error=error.strerror), hint)
    if len(data) > BYTES_MAX:
        sizes = {"number": f"{len(data):,}", "most": f"{BYTES_MAX:,}"}
        _usage(tr("{file} has {number} bytes; {most} are accepted", file=file, **sizes), hint)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        _usage(tr("{file} is not UTF-8: {error} at byte {at}", file=file, error=error.reason, at=error.start), hint)
    kind = KINDS.get(Path(file).suffix.lower())
    kind_found, fields = (_as_json if kind == JSON else _as_yaml if kind == YAML else _as_either)(file, text, hint)
    if not isinstance(fields, dict) or not all(isinstance(name, str) for name in fields):
        _usage(tr("{file} does not hold an object of named fields", file=file), hint)
    return Document(text, kind_found, fields)


def _as_json(file: str, text: str, hint: str) -> tuple[str, Any]:
    try:
        return JSON, json.loads(text)
    except (ValueError, RecursionError) as error:
        _usage(tr("{file} is not JSON: {error}", file=file, error=error), hint)


def _as_yaml(file: str, text: str, hint: str) -> tuple[str, Any]:
    try:
        return YAML, yaml.load(text, PlainYaml)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = tr("line {line}, column {column}", line=mark.line + 1, column=mark.column + 1) if mark else "?"
        problem = " ".join(str(part) for part in (error.context, error.problem) if part)
        _usage(tr("{file} is not YAML: {error} ({place})", file=file, error=problem, place=place), hint)
    except yaml.YAMLError as error:
        _usage(tr("{file} is not YAML: {error}", file=file, error=" ".join(str(error).split())), hint)
    except (ValueError, RecursionError) as error:
        _usage(tr("{file} is not YAML: {error}", file=file, error=error), hint)


def _as_either(file: str, text: str, hint: str) -> tuple[str, Any]:
    try:
        return JSON, json.loads(text)
    except (ValueError, RecursionError) as error:
        kind, fields = _as_yaml(file, text, hint) if text.strip() else (JSON, None)
        if not isinstance(fields, dict):
            _usage(tr("{file} is not JSON: {error}; nor is it YAML with named fields", file=file, error=error), hint)
        return kind, fields


def _usage(message: str, hint: str) -> NoReturn:
    raise typer.BadParameter(message, param_hint=hint)
