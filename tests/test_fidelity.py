"""docs/fidelity.md: every difference from AWS is emulated or checked, every trap is covered, and all names exist."""

from __future__ import annotations

import ast
import re

import pytest

from tests.markdown import DEPLOY, ROOT, Page
from tests.test_traps import ROWS as TRAPS
from tests.test_traps import named_in

PAGE = Page(ROOT / "docs" / "fidelity.md")
AREAS = [
    "Lambda",
    "EventBridge and SQS",
    "DynamoDB",
    "ECS and EC2",
    "API Gateway",
    "IAM",
    "CloudWatch and SNS",
    "CDK and regions",
]
WITHOUT = "Traps without an emulator"
HEADER = ["Difference", "AWS (source)", "Emulated in", "Checked by"]
WITHOUT_HEADER = ["Traps", "What the tests use instead", "Tests in"]
EMULATORS = ("tests/simulator/", "tests/platform/", "tests/sandbox/")
"""Tests in these folders meet what an emulator does by itself. Elsewhere a test says what AWS would answer."""
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
PATH = re.compile(r"`((?:sandbox|tests|simulator|infra)/[\w./]*)`")
CHECKED = re.compile(rf"{TEST.pattern}|{PATH.pattern}|[Dd]ocumentation|not checked")
RUNNER = ROOT / "sandbox/ministack/runner.py"
TABLES = [table for table in PAGE.tables() if table[0] == HEADER]
ROWS = [row for table in TABLES for row in table[1:]]
WITHOUT_ROWS = [row for table in PAGE.tables() if table[0] == WITHOUT_HEADER for row in table[1:]]
SHOWN_BY = {trap[0]: set(re.findall(r"`(tests/[\w/]+\.py)::", trap[3])) for trap in TRAPS}
NAMED = re.compile(r"\(traps? ([^)]*)\)")
each_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])


def patches() -> set[str]:
    """The patches of MiniStack, from the runner's table."""
    tree = ast.parse(RUNNER.read_text(encoding="utf-8"))
    (table,) = (
        node.value for node in tree.body if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "PATCHES"
    )
    assert isinstance(table, ast.Tuple)
    return {ast.unparse(one) for one in table.elts}


def test_each_area_has_its_table() -> None:
    """A table that lost its header would lose its tests."""
    assert [title for level, title in PAGE.headings() if level == 2] == [*AREAS, WITHOUT]
    assert len(TABLES) == len(AREAS)


@each_row
def test_a_difference_is_emulated_or_checked(row: list[str]) -> None:
    """Four cells; the last names a test, a file, the documentation that was read, or says that nothing checks it."""
    assert len(row) == 4 and all(row)
    assert CHECKED.search(row[3]), row[0]


@each_row
def test_what_a_row_names_exists(row: list[str]) -> None:
    """A test, a file or a patch that was renamed or removed leaves its difference unchecked."""
    for cell in row:
        for path, name in TEST.findall(cell):
            assert name in named_in(path), f"{path}::{name}"
        for path in PATH.findall(cell):
            assert (ROOT / path).exists(), path
        assert cell.count("`tests/") == len(TEST.findall(cell)) + len(re.findall(r"`tests/[\w./]*`", cell)), cell
    if "`sandbox/ministack/" in row[2]:
        assert set(re.findall(r"`(\w+)`", row[2])) & patches(), row[0]


def test_every_patch_of_ministack_is_a_difference() -> None:
    """A patch exists because AWS behaves otherwise."""
    named = {name for row in ROWS for name in re.findall(r"`(\w+)`", row[2])}
    assert patches() <= named


def ids(text: str) -> set[str]:
    """The traps of a list such as `C2, E11–E14`. A range does not grow with its group: a new trap is in none."""
    found: set[str] = set()
    for part in text.split(", "):
        match = re.fullmatch(r"([A-Z])(\d+)(?:–\1(\d+))?", part)
        assert match is not None, part
        found |= {f"{match[1]}{number}" for number in range(int(match[2]), int(match[3] or match[2]) + 1)}
    return found


def of_differences() -> set[str]:
    """The traps that a difference names, in its first cell."""
    return {trap for row in ROWS for text in NAMED.findall(row[0]) for trap in ids(text)}


def met_in_emulators() -> set[str]:
    """The traps whose answer a test in an emulator shows."""
    return {trap for trap, files in SHOWN_BY.items() if any(file.startswith(EMULATORS) for file in files)}


def test_each_trap_is_met_in_an_emulator_or_is_a_difference() -> None:
    """One that is neither was forgotten: nobody knows whether it was met before an account meets it."""
    assert SHOWN_BY.keys() - met_in_emulators() - of_differences() == {
        one for row in WITHOUT_ROWS for one in ids(row[0])
    }


def test_the_traps_that_are_named_are_there() -> None:
    """Nothing else is a trap."""
    assert of_differences() <= SHOWN_BY.keys()


@pytest.mark.parametrize("row", WITHOUT_ROWS, ids=lambda row: row[0])
def test_a_trap_without_an_emulator_has_tests_where_its_row_says(row: list[str]) -> None:
    """And is on the list once, and only for as long as no emulator has it and no difference names it."""
    folders = tuple(PATH.findall(row[2]))
    assert folders and all((ROOT / folder).is_dir() for folder in folders)
    for trap in ids(row[0]):
        assert any(file.startswith(folders) for file in SHOWN_BY[trap]), trap
        assert sum(trap in ids(other[0]) for other in WITHOUT_ROWS) == 1, trap
    assert not ids(row[0]) & (met_in_emulators() | of_differences())


def test_the_page_of_deployment_leads_to_the_differences() -> None:
    """An operator who doubts the sandbox looks there first."""
    assert "fidelity.md" in DEPLOY.links()
