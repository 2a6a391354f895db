"""The catalogue of faults in docs/simulator.md: every row names a scenario, and says what that shows."""

from __future__ import annotations

import re

import pytest

from simulator.trials.scenario import FOLDER, read
from tests.markdown import ROOT, Page

PAGE = Page(ROOT / "docs/simulator.md")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.text.partition("## Catalogue of faults")[2].partition("\n## ")[0].splitlines()
    if re.match(r"\| \d\d", line)
]


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_every_fault_of_the_catalogue_is_shown_as_its_row_says(row: list[str]) -> None:
    """The scenario expects the jobs, the attempts and the mails of its row."""
    named = row[2].strip("`")
    expect = read(FOLDER / f"{named}.toml").expect
    assert expect.jobs is not None and expect.attempts is not None and expect.mail is not None, named
    ends = [f"{status} {attempts}" for status, attempts in zip(expect.jobs, expect.attempts, strict=True)]
    assert (row[3], row[4]) == (", ".join(ends), str(len(expect.mail)))


def test_every_fault_has_one_row() -> None:
    """In the order of their numbers."""
    numbers = [row[0] for row in ROWS]
    assert numbers == sorted(set(numbers))
