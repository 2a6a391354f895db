"""Limits and defaults of the core: the table `defaults.json`.

They are settings of users, documented numbers, or sizes of records. `python -m tests.core.defaults --write` writes
the table again after a deliberate change.
"""

from __future__ import annotations

import json
import pkgutil
import sys
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

from gpu_recovery import core

TABLE = Path(__file__).with_name("defaults.json")
NUMBERS = (bool, int, float, timedelta)
NOT_LIMITS = {"TYPE_CHECKING"}
"""Imported names of modules that are numbers and no limits."""


def is_plain(value: Any) -> bool:
    """Whether the value is a number, or a tuple of numbers; members of enums are names."""
    if isinstance(value, tuple):
        return bool(value) and all(is_plain(part) for part in value)
    return type(value) in NUMBERS


def values_of(name: str) -> Iterator[tuple[str, str]]:
    """Yield the numbers that a module defines: its constants, and the defaults of its dataclasses."""
    module = import_module(name)
    for key, value in vars(module).items():
        if key.isupper() and key not in NOT_LIMITS and is_plain(value):
            yield f"{name}.{key}", repr(value)
        if isinstance(value, type) and is_dataclass(value) and value.__module__ == name:
            for field in fields(value):
                if field.default is not MISSING and is_plain(field.default):
                    yield f"{name}.{key}.{field.name}", repr(field.default)


def found() -> dict[str, str]:
    """Return all limits and defaults, by module, class and name."""
    modules = [module.name for module in pkgutil.walk_packages(core.__path__, f"{core.__name__}.")]
    return {name: value for module in sorted(modules) for name, value in values_of(module)}


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit("usage: python -m tests.core.defaults --write")
    TABLE.write_text(json.dumps(found(), indent=0) + "\n", encoding="utf-8")
