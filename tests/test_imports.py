"""Who imports whom: no circle inside a place, and inside `gpu_recovery` only what a table allows.

The graph is read from the syntax trees. An import inside a function or under TYPE_CHECKING counts like every other. An
import of `a.b.c` is an edge to `a.b.c` alone: that Python runs the `__init__` of `a` and `a.b` before it is no edge,
else no package could import its own modules. `from a.b import name` is an edge to the module `a.b.name` if there is
one, else to `a.b`.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from tests.heavy_imports import COLLECTED

ROOT = Path(__file__).parents[1]
PLACES = {
    "gpu_recovery": "lambdas/gpu_recovery",
    "simulator": "simulator",
    "gpu_recovery_client": "client/gpu_recovery_client",
    "gpu_recovery_agent": "agent/gpu_recovery_agent",
    "sandbox": "sandbox",
    "health_check": "health_check",
    "image_builder": "image_builder",
    "infra": "infra",
    "release": "release",
}
"""The packages in which no circle may be, and where they are."""
ENTRIES_MAX = 15
LOOP = {"core", "ports", "recovery", "execution", "partial_failures"}
MAY_IMPORT: Mapping[str, set[str]] = {
    "core": set(),
    "ports": {"core"},
    "wire": {"core"},
    "partial_failures": {"ports"},
    "auth": {"core", "ports"},
    "execution": {"core", "ports", "wire"},
    "recovery": {"core", "ports", "execution", "partial_failures"},
    "fleet_controls": {"core", "ports", "recovery"},
    "ecs_events": LOOP,
    "scheduler": LOOP | {"wire"},
    "event_recorder": {"core", "ports"},
    "reconciler": LOOP | {"ecs_events", "fleet_controls", "wire"},
    "node_api": {"core", "ports", "wire", "auth", "recovery"},
    "job_api": {"core", "ports", "wire", "auth", "recovery", "execution", "scheduler", "fleet_controls"},
}
"""What each package or module at the top of `gpu_recovery` may import there, beside itself."""
IMPLEMENTS = "aws"
"""The package that implements the ports: it may import everything, and nothing imports it."""


def _module(path: Path) -> str:
    """The dotted name of the file at `path`."""
    for package, folder in PLACES.items():
        if path.is_relative_to(ROOT / folder):
            inner = path.relative_to(ROOT / folder).with_suffix("").parts
            return ".".join((package, *inner)).removesuffix(".__init__")
    raise ValueError(f"{path} is in no place")


@cache
def _files() -> Mapping[str, Path]:
    """Every module of every place, by its name."""
    return {_module(path): path for folder in PLACES.values() for path in sorted((ROOT / folder).rglob("*.py"))}


@cache
def _imports(name: str) -> frozenset[str]:
    """The modules of the places that the module `name` imports."""
    path = _files()[name]
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    found = set[str]()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            found |= {whole if (whole := f"{base}.{alias.name}") in _files() else base for alias in node.names}
    return frozenset(found & set(_files())) - {name}


def _circles(graph: Mapping[str, frozenset[str]]) -> list[list[str]]:
    """The strongly connected components with more than one node, each sorted (Tarjan's algorithm)."""
    number, low, stack, found = dict[str, int](), dict[str, int](), list[str](), list[list[str]]()

    def visit(node: str) -> None:
        number[node] = low[node] = len(number)
        stack.append(node)
        for other in sorted(graph[node]):
            if other not in number:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], number[other])
        if low[node] == number[node]:
            at = stack.index(node)
            found.extend([sorted(stack[at:])] if len(stack) - at > 1 else [])
            del stack[at:]

    for node in sorted(graph):
        if node not in number:
            visit(node)
    return found


def _within(package: str) -> dict[str, frozenset[str]]:
    """The graph of the imports inside a place."""
    names = {name for name in _files() if name == package or name.startswith(f"{package}.")}
    return {name: _imports(name) & names for name in sorted(names)}


def _entry(name: str) -> str:
    """The package or module at the top of its place that a module is in; "" for the `__init__` of the place."""
    return name.split(".")[1] if "." in name else ""


def _entries() -> set[str]:
    """The packages and modules at the top of `gpu_recovery`."""
    return {_entry(name) for name in _within("gpu_recovery")} - {""}


@pytest.mark.parametrize("package", PLACES)
def test_no_import_circle(package: str) -> None:
    """Modules that import each other can be understood, tested and moved only together."""
    circles = [" <-> ".join(circle) for circle in _circles(_within(package))]
    assert not circles, "\n" + "\n".join(circles)


def test_no_two_packages_import_each_other() -> None:
    """No circle of modules need be there: two packages that import each other are one."""
    graph = {entry: set[str]() for entry in _entries()}
    for name, imported in _within("gpu_recovery").items():
        if _entry(name):
            graph[_entry(name)] |= {_entry(other) for other in imported} - {"", _entry(name)}
    circles = [" <-> ".join(one) for one in _circles({entry: frozenset(found) for entry, found in graph.items()})]
    assert not circles, "\n" + "\n".join(circles)


@pytest.mark.parametrize("entry", MAY_IMPORT)
def test_a_package_imports_only_what_the_table_allows(entry: str) -> None:
    """The layers: what decides is below what acts, and both are below what a function runs."""
    assert entry in _entries(), f"there is no gpu_recovery.{entry}"
    wrong = [
        f"{name} imports {other}"
        for name, imported in _within("gpu_recovery").items()
        for other in sorted(imported)
        if _entry(name) == entry and _entry(other) not in MAY_IMPORT[entry] | {entry, ""}
    ]
    assert not wrong, "\n" + "\n".join(wrong)


def test_the_table_names_everything_at_the_top() -> None:
    """A new package or module has its row before it is imported anywhere."""
    assert _entries() == {*MAY_IMPORT, IMPLEMENTS}


def test_the_top_of_the_package_is_small() -> None:
    """What is seen first is a map, and a map of forty entries shows nothing."""
    assert len(_entries()) <= ENTRIES_MAX, sorted(_entries())


def test_no_test_module_imports_what_takes_seconds(request: pytest.FixtureRequest) -> None:
    """The collection of this run has imported none of the heavy libraries."""
    assert request.config.stash[COLLECTED] == frozenset()
