"""The score of a mutation run, and where it is written."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks import branch_coverage, results
from benchmarks.mutation.mutants import PRODUCT, Mutant
from benchmarks.mutation.score import Trial, by_package, figures, lines
from benchmarks.mutation.worker import FOUND, SURVIVED, TIMEOUT

CORE = [
    Trial("core", Mutant(f"{PRODUCT}/core/job/record.py", line, 4, "AddNot", line), outcome, "", tests)
    for line, outcome, tests in ((2, SURVIVED, 0), (1, SURVIVED, 7), (1, FOUND, 7), (2, TIMEOUT, 3))
]
OTHER = Trial("elsewhere", Mutant(f"{PRODUCT}/recovery.py", 1, 0, "RemoveCall", 0), FOUND, "", 2)


def test_a_mutant_whose_tests_take_too_long_is_found() -> None:
    """A loop that never ends is noticed."""
    rows = figures([*CORE, OTHER])
    assert rows["core"] == {"tried": 4, "found": 2, "too_long": 1, "score": 0.5, "goal": 0.9}
    assert rows["elsewhere"]["score"] == 1.0


def test_a_group_without_mutants_has_no_score() -> None:
    """It is neither good nor bad."""
    assert figures(CORE)["elsewhere"]["score"] is None


def test_packages_are_counted() -> None:
    """The report says where tests are missing."""
    assert by_package([*CORE, OTHER]) == {"core/job": (2, 4), "recovery.py": (1, 1)}


def test_survivors_are_listed_with_their_line() -> None:
    """File, line, operator and code, in the order of the files."""
    report = "\n".join(lines([*CORE, OTHER], {f"{PRODUCT}/core/job/record.py": "first\n    second\n"}))
    assert "core: 50.0% of 4 mutants found; the goal is 90%" in report
    assert report.index("record.py:1:4 AddNot #1 (7 tests)\n      first") < report.index(
        "record.py:2:4 AddNot #2 (no test executes the line)\n      second"
    )
    assert "recovery.py:1" not in report


def test_figures_of_other_commands_are_kept(tmp_path: Path) -> None:
    """`make bench` may not remove the mutation score, nor `make mutants` the benchmarks."""
    path = tmp_path / "results.json"
    results.write({"python": "3.11"}, path)
    results.update("mutants", {"seed": 1}, path)
    assert json.loads(path.read_text()) == {"python": "3.11", "mutants": {"seed": 1}}
    assert results.kept(path) == {"mutants": {"seed": 1}}


def test_branch_coverage_is_summed_by_package() -> None:
    """A package of the product counts alone, any other folder as a whole."""

    def row(*numbers: int) -> dict[str, dict[str, int]]:
        names = ("covered_lines", "num_statements", "covered_branches", "num_branches")
        return {"summary": dict(zip(names, numbers, strict=True))}

    rows = branch_coverage.figures(
        {
            f"{PRODUCT}/core/a.py": row(1, 2, 1, 1),
            f"{PRODUCT}/core/b.py": row(2, 2, 1, 3),
            "infra/c.py": row(0, 4, 0, 0),
        }
    )
    assert rows["gpu_recovery/core"] == {
        "statements": 4,
        "statements_percent": 75.0,
        "branches": 4,
        "branches_percent": 50.0,
    }
    assert rows["infra"]["branches_percent"] == 100.0
    assert branch_coverage.package_of(f"{PRODUCT}/recovery.py") == "gpu_recovery/recovery"
