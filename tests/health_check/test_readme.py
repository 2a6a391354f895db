"""The check's own page says what the program does."""

from __future__ import annotations

import re
from pathlib import Path

from gpu_recovery.core.policy import CHECK_MARGIN_S, PRESETS, Preset

import health_check
from health_check.driver import ANSWERS_WITHIN_S
from health_check.evidence import CheckEvidence, DiagnosticStep, plan
from health_check.publish import ATTEMPTS_MAX, READ_TIMEOUT_S
from health_check.remedies import EXIT_CODES
from health_check.run import TESTS_END_WITHIN_S
from health_check.settings import TIMEOUT_S_BY_LEVEL
from health_check.xid_table import TABLES, XidPolicy

FOLDER = Path(health_check.__file__).parent
PAGE = (FOLDER / "README.md").read_text(encoding="utf-8")
DEPLOY = (FOLDER.parent / "docs" / "deploy.md").read_text(encoding="utf-8")
DEFAULT = PRESETS[Preset.ADAPTIVE]


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
    """Deadlines by level, how long the driver may take, and how long a test in the engine of the host may end."""
    assert f"has up to {TESTS_END_WITHIN_S:.0f} seconds to end" in PAGE
    seconds = ", ".join(str(TIMEOUT_S_BY_LEVEL[level]) for level in range(5))
    assert f"by level {seconds} |" in PAGE
    minutes = [TIMEOUT_S_BY_LEVEL[level] // 60 for level in (1, 2, 3)]
    assert "{}, {} and {} minutes are kept for levels 1, 2 and 3".format(*minutes) in PAGE
    assert f"within {ANSWERS_WITHIN_S:.0f} seconds" in PAGE
    assert ATTEMPTS_MAX == 5 and f"five attempts of {READ_TIMEOUT_S} seconds" in PAGE


def _told(cell: str) -> list[tuple[int, int]]:
    """The seconds in a cell of the table of deeper tests, each with its level."""
    return [
        (int(seconds.replace(",", "")), int(level)) for seconds, level in re.findall(r"([\d,]+) s at level (\d)", cell)
    ]


def test_deeper_is_examined_from_the_seconds_on_that_are_told() -> None:
    """And not a second earlier; no other level is ever raised."""
    rows = re.findall(r"^\| level (\d) \| (.+?) \| (.+?) \|$", PAGE, re.MULTILINE)
    named, unnamed = CheckEvidence(suspects=frozenset({0})), CheckEvidence(unnamed=True)
    for level in range(1, 5):
        for evidence, column in ((named, 1), (unnamed, 2)):
            first = {}
            for seconds in range(0, 20_000, 60):
                first.setdefault(plan(level, seconds, evidence)[0].level, seconds)
            first.pop(level)
            told = {deeper: seconds for row in rows if int(row[0]) == level for seconds, deeper in _told(row[column])}
            assert first == told, (level, evidence)
            for deeper, seconds in told.items():
                assert plan(level, seconds - 1, evidence)[0].level < deeper


def test_the_default_time_examines_nothing_deeper_and_the_told_thresholds_do() -> None:
    """Of the control plane's thresholds, what is left when the first two stages have taken all they may."""
    default = DEFAULT.check_timeout_s - CHECK_MARGIN_S
    assert DEFAULT.verify_timeout_s == DEFAULT.check_timeout_s
    assert f"gives a check {default:,} s unless" in PAGE
    named, unnamed = CheckEvidence(suspects=frozenset({0})), CheckEvidence(unnamed=True)
    assert plan(2, default, named) == plan(2, default, unnamed) == (DiagnosticStep(2),)
    (of_named,) = re.findall(r"at least (\d+), and the suspected GPUs are known", DEPLOY)
    (of_unnamed,) = re.findall(r"at least (\d+), and the suspected GPUs are not known", DEPLOY)
    left = [int(seconds) - CHECK_MARGIN_S - ANSWERS_WITHIN_S for seconds in (of_named, of_unnamed)]
    assert plan(2, left[0], named)[0].level == plan(2, left[1], unnamed)[0].level == 3
    assert plan(2, left[0] - 60, named)[0].level == plan(2, left[1] - 60, unnamed)[0].level == 2


def test_where_the_policies_differ_is_told() -> None:
    """Three codes and a range; the other differences are notes."""
    ours, other = TABLES[XidPolicy.NVIDIA], TABLES[XidPolicy.AWS]
    differ = {code: other[code].xid_class.value for code in ours if other[code].xid_class is not ours[code].xid_class}
    assert "replace for 63 and 142, reboot for any 74, a note for 144 to 150" in PAGE
    assert {code: word for code, word in differ.items() if word != "WATCH"} == {
        63: "REPLACE",
        74: "REBOOT",
        142: "REPLACE",
    }
    assert set(range(144, 151)) <= differ.keys()
