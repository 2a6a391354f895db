"""The selection of tests for a mutant."""

from __future__ import annotations

from pathlib import Path

import pytest
from coverage import CoverageData

from benchmarks.mutation import selection
from benchmarks.mutation.mutants import PRODUCT
from benchmarks.mutation.selection import TABLES, Suite, batches, importers, statement_lines, steps

LIMITS, RECOVERY = f"{PRODUCT}/core/limits.py", f"{PRODUCT}/recovery.py"
LIMIT_TEST, SAVE_TEST, FAILED_TEST = "tests/core/test_limits.py::test_over[1]", "tests/test_save.py::test_save", "t::f"


@pytest.fixture
def suite(tree: Path) -> Suite:
    """What a run of three tests says; one of them failed and has no time."""
    data = CoverageData(no_disk=True)
    for context, lines in {
        "": {LIMITS: [1, 3, 6], RECOVERY: [1, 3, 6]},
        f"{LIMIT_TEST}|run": {LIMITS: [7]},
        f"{SAVE_TEST}|setup": {RECOVERY: [7, 8, 11, 12]},
        f"{FAILED_TEST}|run": {RECOVERY: [7, 8]},
    }.items():
        data.set_context(context)
        data.add_lines(lines)
    return Suite(tree, data, {LIMIT_TEST: 0.1, SAVE_TEST: 0.2})


def test_the_tests_that_execute_the_line_are_selected(suite: Suite) -> None:
    """Others cannot find the mutant, and a test that fails anyway finds every mutant."""
    assert suite.tests_of(LIMITS, 7) == {LIMIT_TEST}
    assert suite.tests_of(RECOVERY, 7) == {SAVE_TEST}


def test_a_line_inside_a_statement_is_executed_with_it(suite: Suite) -> None:
    """The interpreter reports not every line of a statement that goes over several."""
    assert suite.tests_of(RECOVERY, 9) == {SAVE_TEST}


def test_a_line_that_runs_on_import_has_the_tests_of_its_users(suite: Suite) -> None:
    """A constant is read by functions of its own file and of files that import it."""
    assert suite.tests_of(LIMITS, 3) == {LIMIT_TEST, SAVE_TEST}


def test_a_line_that_runs_on_import_has_the_tests_that_compare_tables(tree: Path) -> None:
    """They read a constant by its name, so no function of its file runs in them."""
    data = CoverageData(no_disk=True)
    data.set_context("")
    data.add_lines({LIMITS: [1, 3, 6]})
    table = f"{TABLES[0]}::test_limits_and_defaults_are_those_of_the_table"
    suite = Suite(tree, data, {table: 2.0, LIMIT_TEST: 0.1})
    assert suite.tests_of(LIMITS, 3) == {table}
    assert next(batches(LIMITS, [LIMIT_TEST, table], suite.seconds))[0] == table


def test_a_line_that_nothing_executes_has_no_tests(suite: Suite) -> None:
    """A mutant there survives."""
    assert suite.tests_of(RECOVERY, 10) == set()


def test_a_compound_statement_ends_where_its_body_begins() -> None:
    """The tests of the body may not run for another line of it."""
    source = "if a(\n    b\n):\n    c()\n    d(\n        e)\nelse:\n    f()\n"
    assert [list(statement_lines(source, line)) for line in (2, 4, 6, 8)] == [[1, 2, 3], [4], [5, 6], [8]]


def test_importers_are_found_by_absolute_and_relative_imports(tree: Path) -> None:
    """The product imports itself by absolute names; a relative name means the same."""
    (tree / PRODUCT / "core/user.py").write_text("from gpu_recovery.core import limits\n")
    (tree / PRODUCT / "node_api/user.py").write_text("from ..core import other, limits as known\n")
    (tree / PRODUCT / "whole.py").write_text("import gpu_recovery.recovery\n")
    direct = [f"{PRODUCT}/{name}" for name in ("core/user.py", "node_api/user.py", "recovery.py")]
    assert importers(tree, LIMITS) == [*direct, f"{PRODUCT}/whole.py"]
    assert importers(tree, RECOVERY) == [f"{PRODUCT}/whole.py"]


def test_two_files_that_import_each_other_end_the_search(tree: Path) -> None:
    """A file is no importer of itself."""
    (tree / PRODUCT / "one.py").write_text("from gpu_recovery import two\n")
    (tree / PRODUCT / "two.py").write_text("from gpu_recovery import one\n")
    assert importers(tree, f"{PRODUCT}/one.py") == [f"{PRODUCT}/two.py"]


def test_near_tests_have_fewer_steps() -> None:
    """The tests of a file mostly lie in a folder of the same name."""
    far, near = "tests/aws/test_a.py::t", "tests/core/job/test_record.py::t[x]"
    assert [steps(f"{PRODUCT}/core/job/record.py", test) for test in (far, near)] == [3, 0]


def test_first_cases_of_many_functions_come_before_many_cases_of_one() -> None:
    """Cases of one function mostly find the same mutants."""
    seconds = {f"tests/core/test_a.py::one[{n}]": 1.0 for n in range(9)} | {"tests/core/test_b.py::two": 1.2}
    first = next(batches(LIMITS, seconds, seconds))
    assert first == ["tests/core/test_a.py::one[0]", "tests/core/test_b.py::two"]


def test_batches_grow_and_end_at_their_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most mutants are found by the first tests; a mutant that survives must not cost the whole suite."""
    monkeypatch.setattr(selection, "BATCHES_S", (2.0, 4.0))
    seconds = {f"tests/test_a.py::t{n}": 1.0 for n in range(9)}
    assert [len(batch) for batch in batches(LIMITS, seconds, seconds)] == [1, 3]


def test_a_test_longer_than_a_batch_is_run_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be the only test of the line."""
    monkeypatch.setattr(selection, "BATCHES_S", (2.0,))
    assert list(batches(LIMITS, ["tests/a.py::t"], {"tests/a.py::t": 60.0})) == [["tests/a.py::t"]]


def test_the_tests_of_a_file_run_together() -> None:
    """Else the fixtures of the file would be made again and again."""
    seconds = {"tests/a.py::one": 0.1, "tests/b.py::two": 0.2, "tests/a.py::three": 0.3}
    assert next(batches(LIMITS, seconds, seconds)) == ["tests/a.py::one", "tests/a.py::three", "tests/b.py::two"]
