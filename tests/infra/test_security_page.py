"""SECURITY.md claims nothing without a test: every test it names is there."""

import ast
import re

import pytest

from tests.markdown import ROOT, Page

PAGE = Page(ROOT / "SECURITY.md")
NAMED = sorted({span for span in PAGE.spans() if span.startswith("tests/")})


@pytest.mark.parametrize("named", NAMED)
def test_a_test_that_the_page_names_is_there(named: str) -> None:
    """A file of tests, or one test in it."""
    path, _, name = named.partition("::")
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    tests = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    assert (name or path.rpartition("/")[2].removesuffix(".py")) in {
        *tests,
        path.rpartition("/")[2].removesuffix(".py"),
    }


def test_every_threat_has_an_answer_and_a_test() -> None:
    """Each row of the tables of attempts ends with a test."""
    tables = [table for table in PAGE.tables() if table[0] == ["Attack", "Defence", "Test"]]
    rows = [row for table in tables for row in table[1:]]
    assert len(tables) == 6
    assert [row[0] for row in rows if not re.match(r"`tests/", row[2])] == []
