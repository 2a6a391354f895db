"""docs/traps.md: every trap has its answer, and every test or decision that it names is there."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from tests.markdown import ROOT, Page

PAGE = Page(ROOT / "docs" / "traps.md")
AT_LEAST = {
    "T": 6,
    "C": 3,
    "H": 7,
    "E": 14,
    "P": 15,
    "D": 12,
    "A": 3,
    "R": 13,
    "S": 6,
    "L": 10,
    "G": 5,
    "Q": 6,
    "N": 9,
    "X": 5,
    "I": 10,
    "M": 4,
    "K": 14,
    "J": 16,
    "V": 3,
    "F": 18,
    "U": 34,
    "B": 4,
}
"""How many traps are known of each kind. A number only grows: a trap that was answered stays one."""
ROWS = [row for table in PAGE.tables() for row in table[1:]]
each_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])


@cache
def named_in(path: str) -> frozenset[str]:
    """The names of the tests in a file."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return frozenset(one.name for one in tree.body if isinstance(one, ast.FunctionDef) and one.name.startswith("test_"))


def test_every_group_holds_as_many_traps_as_are_known() -> None:
    """A group has one letter, its rows are numbered from 1 without a gap, and none is lost."""
    found: dict[str, list[int]] = {}
    for row in ROWS:
        match = re.fullmatch(r"([A-Z])(\d+)", row[0])
        assert match is not None, row[0]
        found.setdefault(match[1], []).append(int(match[2]))
    assert found.keys() == AT_LEAST.keys()
    for letter, numbers in found.items():
        assert numbers == list(range(1, len(numbers) + 1)), letter
        assert len(numbers) >= AT_LEAST[letter], letter


@each_row
def test_a_trap_says_what_it_is_and_what_answers_it(row: list[str]) -> None:
    """Four cells; the third in words, the last with a test or a decision."""
    assert len(row) == 4 and all(row)
    assert re.search(r"`tests/[\w/]+\.py::test_\w+`|\(decisions/\d{4}-[\w-]+\.md\)", row[3])


@each_row
def test_what_shows_the_answer_exists(row: list[str]) -> None:
    """A test that was renamed or removed leaves its trap without an answer."""
    for path, name in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", row[3]):
        assert name in named_in(path), f"{row[0]}: {path}::{name}"
    for number, file in re.findall(r"\[decision (\d+)\]\((decisions/[\w-]+\.md)\)", row[3]):
        assert file.startswith(f"decisions/{int(number):04d}-") and (PAGE.path.parent / file).exists(), row[0]
    cited = len(re.findall(r"`tests/", row[3])) + len(re.findall(r"\(decisions/", row[3]))
    assert cited == len(row[3].split(", ")), f"{row[0]}: something is named that is neither a test nor a decision"


@pytest.mark.parametrize("letter", AT_LEAST)
def test_rows_refer_only_to_rows_that_are_there(letter: str) -> None:
    """`see J13` leads somewhere."""
    ids = {row[0] for row in ROWS}
    named = {one for row in ROWS for one in re.findall(rf"see ({letter}\d+)", row[2])}
    assert named <= ids
