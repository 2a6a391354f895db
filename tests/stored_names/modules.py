"""The classes of a package, found by walking it: no list of modules has to follow a move."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from types import ModuleType


def modules(package: str) -> Iterator[ModuleType]:
    """The package and every module below it, imported."""
    root = importlib.import_module(package)
    yield root
    for found in pkgutil.walk_packages(root.__path__, f"{package}."):
        yield importlib.import_module(found.name)


def classes(package: str) -> list[type]:
    """Every class that a module of the package defines."""
    return [
        kind
        for module in modules(package)
        for kind in vars(module).values()
        if inspect.isclass(kind) and kind.__module__ == module.__name__
    ]
