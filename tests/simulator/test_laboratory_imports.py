"""Imports of the simulator: no circle, and nobody outside a study imports it.

`explore`, `goodput` and `queue` are studies: verbs of the simulator that nothing else is built on, except what
`BUILT_ON` names. The graph is read from the syntax trees, so an import inside a function or under TYPE_CHECKING counts
as well.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SEARCHED = ("simulator", "sandbox", "lambdas", "agent", "client", "health_check", "infra", "docs", "tests")
"""Folders whose modules may not import a study. `benchmarks` may: they measure the studies too."""
STUDIES = ("explore", "goodput", "queue")
BUILT_ON = {"goodput": ("replay",)}
"""Packages of the simulator that are built on a study: `replay` runs recorded incidents in the world of `goodput`."""
VERBS = ROOT / "simulator" / "__main__.py"
"""The table of verbs: the one module outside the studies that imports them."""


@cache
def _imported(path: Path) -> frozenset[str]:
    """Every dotted name that the module at `path` imports: the modules, and the names taken from them. Of a module that
    never names the simulator: none."""
    found, text = set[str](), path.read_text(encoding="utf-8")
    if "simulator" not in text:
        return frozenset()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not (node.level and path.is_relative_to(ROOT / "simulator")), f"{path} imports relatively"
            found |= {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(found)


def _modules() -> Mapping[str, Path]:
    """Every module of the simulator, by its dotted name."""
    paths = sorted((ROOT / "simulator").rglob("*.py"))
    return {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in paths}


def _importers_from_outside(study: str) -> list[str]:
    """The modules that import the study, and are neither a part of it, nor its tests, nor the table of verbs."""
    name = f"simulator.{study}"
    parts = (study, *BUILT_ON.get(study, ()))
    own = tuple(folder / part for part in parts for folder in (ROOT / "simulator", ROOT / "tests" / "simulator"))
    paths = [path for folder in SEARCHED for path in (ROOT / folder).rglob("*.py")]
    others = [path for path in paths if path != VERBS and not any(path.is_relative_to(one) for one in own)]
    return sorted(
        str(path.relative_to(ROOT))
        for path in others
        if any(one == name or one.startswith(f"{name}.") for one in _imported(path))
    )


@pytest.mark.parametrize("study", STUDIES)
def test_nothing_outside_a_study_imports_it(study: str) -> None:
    """A study may change or go without anything else."""
    assert _importers_from_outside(study) == []
    assert any(one.startswith(f"simulator.{study}") for one in _imported(VERBS)), "the verb has moved: see VERBS"


def test_the_simulator_has_no_import_circle() -> None:
    """Each module can be read after those that it imports."""
    modules = _modules()
    graph = {name: sorted(_imported(path) & modules.keys() - {name}) for name, path in modules.items()}
    assert sum(map(len, graph.values())) > len(modules), "the graph has hardly any edge: are the imports found?"
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"import circle: {' <- '.join(error.args[1])}")
