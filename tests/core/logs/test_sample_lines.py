"""Lines as programs word them, each classified alone: the right kind for nine of ten, and none for what is benign."""

from __future__ import annotations

import pytest
from gpu_recovery.core.logs.classify import classify
from gpu_recovery.core.logs.kinds import CLASSES, LineKind, LogClass

from benchmarks import log_kinds

ROWS = log_kinds.read(log_kinds.LINES)
FOREIGN = log_kinds.FOREIGN.read_text(encoding="utf-8").splitlines()
GPU_CLASSES = {LogClass.HARDWARE, LogClass.ENVIRONMENT, LogClass.CASCADE, LogClass.NETWORK}


@pytest.mark.parametrize("part", log_kinds.FIRST)
def test_nine_of_ten_lines_get_their_kind_and_no_benign_one_an_alarm(part: str) -> None:
    """What the classifier is for; each part is of sources of its own."""
    figures = log_kinds.score(row for row in ROWS if row["half"] == part)
    assert figures["lines"] == log_kinds.FIRST[part][1]
    assert figures["right"] >= 0.9
    assert (figures["benign"] > 10, figures["alarms"]) == (True, 0)


def test_no_source_is_in_two_parts() -> None:
    """Otherwise a rule would be graded on what it was made for."""
    parts: dict[str, set[str]] = {}
    for row in ROWS:
        parts.setdefault(row["source"], set()).add(row["half"])
    assert all(len(one) == 1 for one in parts.values())


def test_the_lines_are_many_of_most_kinds_and_each_names_its_thread() -> None:
    """Two hundred lines, sixty of them benign; kinds are those that there are."""
    assert len(ROWS) >= 200
    assert sum(row["kind"] == LineKind.BENIGN for row in ROWS) >= 60
    assert {row["kind"] for row in ROWS} <= set(LineKind)
    assert all(row["source"].startswith("https://github.com/") for row in ROWS)
    assert len({row["line"] for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("line", FOREIGN)
def test_a_log_of_another_program_blames_no_gpu_and_no_network(line: str) -> None:
    """HDFS, OpenStack, ZooKeeper, Apache, sshd: their errors are theirs."""
    found = classify([line])
    assert CLASSES[found.kind] not in GPU_CLASSES
    assert found.kind is LineKind.BENIGN
