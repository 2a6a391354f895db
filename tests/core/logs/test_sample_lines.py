"""Lines as programs word them, each classified alone: the right kind for nine of ten, and none for what is benign."""

from __future__ import annotations

import json

import pytest
from gpu_recovery.core.logs.classify import classify
from gpu_recovery.core.logs.kinds import CLASSES, LineKind, LineRole, LogClass

from benchmarks import log_kinds, results

PARTS = log_kinds.parts()
ROWS = [row for rows in PARTS.values() for row in rows]
OLD = ("develop", "held", "fresh")
"""The parts of `lines.jsonl`, which hold both benign lines and faults."""
RIGHT_MIN = {
    **dict.fromkeys(OLD, 0.9),
    "benign_tuned": 1.0,
    "benign_tuned2": 1.0,
    "faults_tuned": 0.92,
    "faults_tuned2": 0.92,
    "benign_held": 1.0,
    "faults_held": 0.92,
    "benign_fresh2": 1.0,
    "faults_fresh2": 0.92,
}
"""The smallest share of right lines of each part. It keeps what the rules have learned.

Rules were developed on all parts. So the shares say little about unseen lines; their scores are in `log_kinds.HISTORY`.
"""
FOREIGN = log_kinds.FOREIGN.read_text(encoding="utf-8").splitlines()
TUNED_FAULTS = [row for part in ("tuned", "tuned2", "held", "fresh2") for row in PARTS[f"faults_{part}"]]
GPU_CLASSES = {LogClass.HARDWARE, LogClass.ENVIRONMENT, LogClass.CASCADE, LogClass.NETWORK}
BENIGN = [row["line"] for row in ROWS if row["kind"] == LineKind.BENIGN]


@pytest.mark.parametrize("part", RIGHT_MIN)
def test_nine_of_ten_lines_get_their_kind_and_no_benign_one_an_alarm(part: str) -> None:
    """What the classifier is for; each part is of sources of its own."""
    figures = log_kinds.score(PARTS[part])
    assert figures["right"] / figures["lines"] >= RIGHT_MIN[part]
    assert figures["alarms"] == 0
    assert part not in OLD or figures["benign"] > 10


@pytest.mark.parametrize("part", PARTS)
def test_each_part_has_its_first_score_of_all_its_lines(part: str) -> None:
    """Otherwise a later score would pass for the first."""
    right, lines, alarms = log_kinds.HISTORY[part].first
    assert len(PARTS[part]) == lines
    assert right + alarms <= lines


@pytest.mark.parametrize("part", [part for part, of in log_kinds.HISTORY.items() if of.unseen])
def test_an_unseen_score_is_of_all_lines_of_a_held_part(part: str) -> None:
    """A line that is added or removed later would change what the score is of."""
    assert log_kinds.HISTORY[part].unseen is not None
    right, lines, alarms = log_kinds.HISTORY[part].unseen
    assert part.endswith("_held")
    assert len(PARTS[part]) == lines
    assert right + alarms <= lines


def test_no_source_is_in_two_parts() -> None:
    """Otherwise a rule would be graded on what it was made for. The two newer files share their halves."""
    parts: dict[str, set[str]] = {}
    for part, rows in PARTS.items():
        name = part if part in OLD else part.rpartition("_")[2] + " of the newer files"
        for row in rows:
            parts.setdefault(row["source"], set()).add(name)
    assert all(len(of_source) == 1 for of_source in parts.values())


def test_the_lines_are_many_of_most_kinds_and_each_names_its_thread() -> None:
    """Thirteen hundred lines, five hundred of them benign; kinds are those that there are."""
    assert len(ROWS) >= 1300
    assert len(BENIGN) >= 500
    assert {row["kind"] for row in ROWS} <= set(LineKind)
    assert all(row["source"].startswith("https://") for row in ROWS)
    assert len({row["line"] for row in ROWS}) == len(ROWS)
    newer = [row for part, rows in PARTS.items() if part not in OLD for row in rows]
    assert len({row["source"] for row in newer}) >= 300
    assert all(row["year"] is None or 2023 <= int(row["year"]) <= 2026 for row in newer)


@pytest.mark.parametrize("kind", sorted({row["kind"] for row in TUNED_FAULTS}))
def test_two_of_three_lines_of_each_kind_are_right(kind: str) -> None:
    """A good average must not hide a kind that is not recognised."""
    rows = [row for row in TUNED_FAULTS if row["kind"] == kind]
    right = sum(classify([row["line"]]).kind == kind for row in rows)
    assert right >= len(rows) * 2 / 3


def test_a_benign_line_is_no_finding_at_all() -> None:
    """Neither alone nor at any place of a log that consists of such lines; advice may be told."""
    told = [finding for finding in classify(BENIGN).findings if finding.role is not LineRole.ADVICE]
    assert told == []


@pytest.mark.parametrize("line", FOREIGN)
def test_a_log_of_another_program_blames_no_gpu_and_no_network(line: str) -> None:
    """HDFS, OpenStack, ZooKeeper, Apache, sshd: their errors are theirs."""
    found = classify([line])
    assert CLASSES[found.kind] not in GPU_CLASSES
    assert found.kind is LineKind.BENIGN


def test_the_results_have_each_kind_of_the_present_rules() -> None:
    """`python -m benchmarks.scoreboard --write` writes them."""
    assert results.read()["log_kinds"] == json.loads(json.dumps(log_kinds.kind_figures()))
