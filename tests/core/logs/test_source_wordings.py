"""Messages that programs can print by their source code, each classified alone: the table `source_wordings.jsonl`.

Nobody has to post a message before the rules know it. Each row names the program and the file of its source that holds
the message; values are invented. Rows of the kind `benign` are warnings and notices of the same programs.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gpu_recovery.core.logs.classify import classify
from gpu_recovery.core.logs.kinds import LineKind, LineRole

ROWS = [
    json.loads(text)
    for text in Path(__file__).with_name("source_wordings.jsonl").read_text(encoding="utf-8").splitlines()
]
FAULTS = [row for row in ROWS if row["kind"] != LineKind.BENIGN]
NOTES = [row["line"] for row in ROWS if row["kind"] == LineKind.BENIGN]
PROGRAMS = sorted({row["program"] for row in FAULTS})


@pytest.mark.parametrize("program", PROGRAMS)
def test_each_message_of_a_program_gets_its_kind(program: str) -> None:
    """By the program's prefix and a definite predicate, not by a sentence that somebody pasted."""
    wrong = {
        row["line"]: found.kind
        for row in FAULTS
        if row["program"] == program and (found := classify([row["line"]])).kind != row["kind"]
    }
    assert not wrong


@pytest.mark.parametrize("note", NOTES)
def test_a_warning_or_notice_of_the_same_programs_is_no_finding(note: str) -> None:
    """Settings that are printed, clean-up at the end of a good run, features that are not used."""
    assert [one for one in classify([note]).findings if one.role is not LineRole.ADVICE] == []


def test_the_table_names_a_source_for_each_fault_and_repeats_no_line() -> None:
    """Some twenty-five programs, and each message once."""
    assert all(row["program"] and row["file"] for row in FAULTS)
    assert len(PROGRAMS) >= 25
    assert len({row["line"] for row in ROWS}) == len(ROWS)
    assert {row["kind"] for row in ROWS} <= set(LineKind)
