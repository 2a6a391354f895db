"""The score of a mutation run: for each group and package, how many mutants were tried and how many were found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.mutation.mutants import PRODUCT, Mutant
from benchmarks.mutation.worker import FOUND, TIMEOUT

GOALS = {"core": 0.90, "elsewhere": 0.80}
"""Smallest share of mutants that is to be found, by group."""


@dataclass(frozen=True)
class Trial:
    """One mutant that was tried.

    Attributes:
        group: `core` or `elsewhere`.
        outcome: see `benchmarks.mutation.worker`.
        detail: the test that failed.
        tests: number of tests that were selected.
    """

    group: str
    mutant: Mutant
    outcome: str
    detail: str
    tests: int

    @property
    def found(self) -> bool:
        """Whether the tests found the mutant: one of them failed, or took far longer than without the mutant."""
        return self.outcome in (FOUND, TIMEOUT)


def figures(trials: Iterable[Trial]) -> dict[str, dict[str, Any]]:
    """Return for each group: mutants tried and found, those that took too long, and the share that was found."""
    counted = list(trials)
    result = {}
    for group, goal in GOALS.items():
        own = [trial for trial in counted if trial.group == group]
        found = sum(trial.found for trial in own)
        result[group] = {
            "tried": len(own),
            "found": found,
            "too_long": sum(trial.outcome == TIMEOUT for trial in own),
            "score": round(found / len(own), 3) if own else None,
            "goal": goal,
        }
    return result


def by_package(trials: Iterable[Trial]) -> Mapping[str, tuple[int, int]]:
    """Return for each package or module at the top of the product: mutants found, and tried."""
    found, tried = Counter[str](), Counter[str]()
    for trial in trials:
        parts = Path(trial.mutant.file).relative_to(PRODUCT).parts
        name = "/".join(parts[:-1][:2]) or parts[0]
        tried[name] += 1
        found[name] += trial.found
    return {name: (found[name], tried[name]) for name in sorted(tried)}


def lines(trials: Iterable[Trial], sources: Mapping[str, str]) -> Iterator[str]:
    """Yield the report: scores by package and group, then each survivor with its line of code.

    Args:
        trials: all trials.
        sources: text of the files of the product, without a mutant, by path.
    """
    counted = list(trials)
    for name, (found, tried) in by_package(counted).items():
        yield f"{name:<24} {found:4} of {tried:4} found"
    for group, row in figures(counted).items():
        if row["tried"]:
            yield f"{group}: {row['score']:.1%} of {row['tried']} mutants found; the goal is {row['goal']:.0%}"
    survivors = sorted((trial for trial in counted if not trial.found), key=lambda trial: trial.mutant)
    yield f"{len(survivors)} survivors" + (":" if survivors else "")
    for trial in survivors:
        code = sources[trial.mutant.file].splitlines()[trial.mutant.line - 1].strip()
        why = f"{trial.tests} tests" if trial.tests else "no test executes the line"
        yield f"  {trial.mutant} ({why})\n      {code}"
