"""docs/fidelity.md: every difference from AWS is emulated or checked, and what the page names is there."""

from __future__ import annotations

import ast
import re

import pytest

from tests.markdown import DEPLOY, ROOT, Page
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
HEADER = ["Difference", "AWS (source)", "Emulated in", "Checked by"]
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
PATH = re.compile(r"`((?:sandbox|tests|simulator|infra)/[\w./]*)`")
CHECKED = re.compile(rf"{TEST.pattern}|{PATH.pattern}|[Dd]ocumentation|not checked")
RUNNER = ROOT / "sandbox/ministack/runner.py"
TABLES = [table for table in PAGE.tables() if table[0] == HEADER]
ROWS = [row for table in TABLES for row in table[1:]]
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
    assert [title for level, title in PAGE.headings() if level == 2] == AREAS
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


def test_the_page_of_deployment_leads_to_the_differences() -> None:
    """An operator who doubts the sandbox looks there first."""
    assert "fidelity.md" in DEPLOY.links()
