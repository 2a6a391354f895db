"""Settings files of deployments, `settings/<name>.toml`: found, read, and changed without the loss of a line.

`infra/settings_file.py` reads the same files at a deployment.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpu_recovery_client.account.findings import Settings
from gpu_recovery_client.errors import SettingsMissing

FOLDER = "settings"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
"""Names of deployments."""
TARGET = ("account", "region")
"""Keys that say where the deployment belongs."""
_TABLE = re.compile(r"\s*\[")


def folder_of(directory: Path) -> Path:
    """Return the folder of the settings files: in the nearest parent with files, else beside the nearest cdk.json."""
    for mark in (FOLDER, "cdk.json"):
        for parent in (directory, *directory.parents):
            if (parent / "cdk.json").is_file() and (parent / mark).exists():
                return parent / FOLDER
    return directory / FOLDER


def names(folder: Path) -> list[str]:
    """Return the names of the deployments with a settings file."""
    return sorted(path.stem for path in folder.glob("*.toml"))


def read_settings(folder: Path, name: str) -> Settings:
    """Return the settings of a deployment.

    Raises:
        SettingsMissing: there is no such file, or it is not TOML.
    """
    path = folder / f"{name}.toml"
    if not NAME.fullmatch(name) or not path.is_file():
        known = ", ".join(names(folder)) or "none"
        raise SettingsMissing(f"there is no {shown(path)} (deployments: {known}): gpu-recovery init {name}")
    document = document_of(path)
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in document.items()}
    target = {key: str(values.pop(key)) for key in TARGET if key in values}
    return Settings(values, shown(path), target=target)


def document_of(path: Path) -> dict[str, Any]:
    """Return a settings file as it is. Raises SettingsMissing if it is not TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SettingsMissing(f"{shown(path)} cannot be read as TOML: {error}") from error


def shown(path: Path) -> str:
    """Return a path as messages show it: relative to the current folder, if it is below."""
    return os.path.relpath(path) if path.is_absolute() and path.is_relative_to(Path.cwd()) else str(path)


def changed(text: str, values: Mapping[str, Any]) -> str:
    """Return the text of a settings file with these values. All other lines, and comments, stay as they are.

    Raises:
        SettingsMissing: a value has a table of its own in the file.

    Args:
        text: the present text.
        values: the values of top-level keys: text, numbers, booleans, lists of text and tables.
    """
    lines = text.splitlines()
    for key in values:
        if re.search(rf"^\s*\[\s*{re.escape(key)}\s*\]", text, re.MULTILINE):
            raise SettingsMissing(f"[{key}] is a table of the file: change it there")
    first_table = next((at for at, line in enumerate(lines) if _TABLE.match(line)), len(lines))
    top, rest = lines[:first_table], lines[first_table:]
    for key, value in values.items():
        new = f"{key} = {toml(value)}".splitlines()
        at = _place(top, key)
        if at is None:
            end = len(top)
            while end and not top[end - 1].strip():
                end -= 1
            top[end:end] = new
        else:
            top[at[0] : at[1]] = new
    return "\n".join((*top, *rest)) + "\n"


def _place(lines: list[str], key: str) -> tuple[int, int] | None:
    """Return the first line of the assignment of a key, and the line after it; None if the key is not assigned."""
    first = next((at for at, line in enumerate(lines) if re.match(rf'\s*"?{re.escape(key)}"?\s*=', line)), None)
    if first is None:
        return None
    for end in range(first + 1, len(lines) + 1):
        try:
            tomllib.loads("\n".join(lines[first:end]))
        except tomllib.TOMLDecodeError:
            continue
        return first, end
    return first, first + 1


def toml(value: Any) -> str:
    """Return a value in TOML. A list has a line for each item, so that a change of one item is a change of one line."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{toml(key)} = {toml(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[\n" + "".join(f"  {toml(item)},\n" for item in value) + "]" if value else "[]"
    # TOML has the escapes of JSON, and allows no DEL in a string, which JSON does.
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
