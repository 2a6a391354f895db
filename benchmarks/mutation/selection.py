"""Selection of tests for a mutant: tests that execute the changed code, cheap and near tests first, up to a limit."""

from __future__ import annotations

import ast
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from coverage import CoverageData

from benchmarks.mutation.mutants import PRODUCT

PACKAGE = Path(PRODUCT).name
"""Name under which the product's modules import each other."""
STEP_S = 0.2
"""What each step in the tree of folders between a test and the changed file counts, in seconds of processor time."""
TABLES = (
    "tests/core/test_defaults.py",
    "tests/core/logs/test_wordings.py",
    "tests/job_api/test_openapi_document.py",
)
"""Tests that compare all constants of the core, the readings of all signatures, or all routes with a table. They read
them without a call of the function that uses them."""
FILE_S = 0.3
"""Processor time to collect one more test file, in seconds."""
BATCHES_S = (3.0, 12.0, 30.0)
"""Largest processor time of each batch of tests of a mutant. A batch runs if no test of the batches before failed."""


@dataclass(frozen=True)
class Suite:
    """What one run of the suite, without any mutant, says about each test.

    Attributes:
        root: tree that the run was in.
        executed: lines of the product that tests executed.
        seconds: time of each test that passed, by node id.
    """

    root: Path
    executed: CoverageData
    seconds: Mapping[str, float]

    @classmethod
    def load(cls, root: Path, coverage_file: Path, seconds_file: Path) -> Suite:
        """Read what the run wrote."""
        executed = CoverageData(str(coverage_file))
        executed.read()
        return cls(root, executed, json.loads(seconds_file.read_text()))

    def tests_of(self, file: str, line: int) -> set[str]:
        """Return the tests that execute a line.

        No test executes a line that runs on import. For such a line they are the tests that execute a function of the
        file, or of a file that imports it, directly or through other files, and the tests of `TABLES`.
        """
        contexts = self.executed.contexts_by_lineno(file)
        statement = statement_lines((self.root / file).read_text(encoding="utf-8"), line)
        tests = self._named(contexts, [line]) or self._named(contexts, statement)
        if not tests and any(number in contexts for number in statement):
            for other in (file, *importers(self.root, file)):
                contexts = self.executed.contexts_by_lineno(other)
                tests |= self._named(contexts, contexts)
            tests |= {test for test in self.seconds if test.startswith(TABLES)}
        return tests

    def _named(self, contexts: Mapping[int, Sequence[str]], lines: Iterable[int]) -> set[str]:
        """Return the tests among the contexts of lines; `pytest-cov` writes `node id|phase`."""
        names = {context.rpartition("|")[0] for line in lines for context in contexts.get(line, ())}
        return names & self.seconds.keys()


def statement_lines(source: str, line: int) -> range:
    """Return the lines of the innermost statement that includes a line; of a compound statement only its head."""
    found = range(line, line + 1)
    best = 0
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.stmt | ast.excepthandler):
            body = getattr(node, "body", None)
            last = body[0].lineno - 1 if body else node.end_lineno or node.lineno
            if best <= node.lineno <= line <= max(last, node.lineno):
                best, found = node.lineno, range(node.lineno, max(last, node.lineno) + 1)
    return found


def importers(root: Path, file: str) -> list[str]:
    """Return the files of the product that import a file, directly or through others, as paths from the root."""
    found = dict[str, None]()
    waiting = [file]
    while waiting:
        module = _module(waiting.pop(0))
        new = [name for name, imported in _imports(root).items() if module in imported and name not in found]
        found |= dict.fromkeys(name for name in new if name != file)
        waiting += [name for name in new if name != file]
    return list(found)


@cache
def _imports(root: Path) -> dict[str, set[str]]:
    """Return the names that each file of the product may import as modules, by the path of the file.

    Names are those of `_module`: without the name of the product's package.
    """
    found = dict[str, set[str]]()
    for path in sorted((root / PRODUCT).rglob("*.py")):
        package = [PACKAGE, *path.relative_to(root / PRODUCT).parent.parts]
        names = found.setdefault(path.relative_to(root).as_posix(), set())
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            imported: list[str] = []
            if isinstance(node, ast.Import):
                imported = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                start = package[: len(package) - node.level + 1] if node.level else []
                base = ".".join([*start, *([node.module] if node.module else [])])
                imported = [base, *(f"{base}.{alias.name}" for alias in node.names)]
            names |= {name.removeprefix(f"{PACKAGE}.") for name in imported if name.startswith(f"{PACKAGE}.")}
    return found


def _module(file: str) -> str:
    """Return the name of the module of a file below PRODUCT, such as `core.job.record`."""
    return ".".join(Path(file).relative_to(PRODUCT).with_suffix("").parts).removesuffix("__init__").removesuffix(".")


def steps(file: str, test: str) -> int:
    """Return the number of folders and files on the way to a file of the product that are not on the way to a test."""
    way = Path(file).relative_to(PRODUCT).with_suffix("").parts
    other = [part.removeprefix("test_") for part in Path(test.split("::", maxsplit=1)[0]).with_suffix("").parts[1:]]
    same = 0
    while same < min(len(way), len(other)) and way[same] == other[same]:
        same += 1
    return len(way) - same


def batches(file: str, tests: Iterable[str], seconds: Mapping[str, float]) -> Iterator[list[str]]:
    """Yield the tests of a mutant of `file` in batches, each with the tests of one file together.

    The cases of one function count one after the other. So the first cases of many functions come before many cases of
    one function. The tests of `TABLES` come first: each compares hundreds of lines.
    """
    cases = defaultdict[str, list[str]](list)
    for test in sorted(tests, key=lambda test: (seconds[test], test)):
        cases[test.split("[")[0]].append(test)
    cost: dict[str, float] = {}
    for function, named in cases.items():
        total = -sum(seconds[test] for test in named) if function.startswith(TABLES) else STEP_S * steps(file, function)
        for test in named:
            total += seconds[test]
            cost[test] = total
    remaining = sorted(cost, key=lambda test: (cost[test], test))
    for limit_s in BATCHES_S:
        batch: list[str] = []
        files = set[str]()
        spent_s = 0.0
        while remaining:
            test = remaining[0]
            more_s = seconds[test] + (FILE_S if test.split("::")[0] not in files else 0)
            if batch and spent_s + more_s > limit_s:
                break
            spent_s += more_s
            files.add(test.split("::")[0])
            batch.append(remaining.pop(0))
        if batch:
            order = {file: n for n, file in enumerate(dict.fromkeys(test.split("::")[0] for test in batch))}
            yield sorted(batch, key=lambda test: order[test.split("::")[0]])
