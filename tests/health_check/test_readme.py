"""The check's own page says what the program does."""

from __future__ import annotations

import re
from pathlib import Path

import health_check
from health_check.driver import ANSWERS_WITHIN_S
from health_check.remedies import EXIT_CODES
from health_check.settings import TIMEOUT_S_BY_LEVEL
from health_check.xid_table import TABLES, XidPolicy

FOLDER = Path(health_check.__file__).parent
PAGE = (FOLDER / "README.md").read_text(encoding="utf-8")


def test_every_variable_that_is_read_is_in_the_table_and_no_other() -> None:
    """Names in the program are quoted capitals."""
    read = set(re.findall(r'"([A-Z]+_[A-Z_]+|FOCUS|SINCE)"', (FOLDER / "settings.py").read_text(encoding="utf-8")))
    table = PAGE[PAGE.index("## Environment") :]
    told = {name for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    assert told == read - {"AWS_DEFAULT_REGION"}


def test_the_exit_codes_are_the_programs() -> None:
    """All five."""
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \|", PAGE, re.MULTILINE)
    assert {name: int(code) for code, name in rows} == {outcome.value: code for outcome, code in EXIT_CODES.items()}


def test_the_numbers_are_the_programs() -> None:
    """Deadlines by level, and how long the driver may take."""
    seconds = ", ".join(str(TIMEOUT_S_BY_LEVEL[level]) for level in range(5))
    assert f"by level {seconds} |" in PAGE
    minutes = [TIMEOUT_S_BY_LEVEL[level] // 60 for level in (1, 2, 3)]
    assert "{}, {} and {} minutes are kept for levels 1, 2 and\n3".format(*minutes) in PAGE
    assert f"within {ANSWERS_WITHIN_S:.0f} seconds" in PAGE


def test_where_the_policies_differ_is_told() -> None:
    """Three codes and a range; the other differences are notes."""
    ours, other = TABLES[XidPolicy.NVIDIA], TABLES[XidPolicy.AWS]
    differ = {code: other[code].xid_class.value for code in ours if other[code].xid_class is not ours[code].xid_class}
    assert "replace for 63 and 142, reboot for any 74, a note for 144 to 150" in PAGE
    assert {code: word for code, word in differ.items() if word != "WATCH"} == {
        63: "REPLACE", 74: "REBOOT", 142: "REPLACE",
    }  # fmt: skip
    assert set(range(144, 151)) <= differ.keys()
