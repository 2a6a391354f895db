"""Old exits, which no agent has removed, are removed when the next rank of their user begins."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from gpu_recovery_agent.rank.exit_files import EXITS_KEPT_MAX

from tests.agent.api import WITHIN_S
from tests.agent.node import Node

DAY_S = 86_400
STRANGER = 4_321


def left(node: Node, name: str, age_s: float) -> Path:
    """A file in the folder of the ranks that was written so long ago."""
    node.running.mkdir(exist_ok=True)
    path = node.running / name
    path.write_text(json.dumps({"job_id": "run-0", "attempt": 1, "rank": 0, "code": 1}))
    os.utime(path, (time.time() - age_s, time.time() - age_s))
    return path


def begin_a_rank(node: Node) -> None:
    """A rank that succeeds; its own exit stays, because no agent runs."""
    assert node.rank("true").wait(WITHIN_S) == 0


def test_of_many_exits_the_newest_stay(node: Node) -> None:
    """Under each of their names, as many as an agent reads in one look. Files of running ranks stay."""
    endings = (".exit", ".exit.json", ".exit.refused")
    for number in range(EXITS_KEPT_MAX + 40):
        left(node, f"{1_000 + number}{endings[number % 3]}", age_s=DAY_S - number)
    left(node, "1.json", age_s=100 * DAY_S)
    begin_a_rank(node)
    kept = [f"{1_000 + number}{endings[number % 3]}" for number in range(40, EXITS_KEPT_MAX + 40)]
    assert node.files() == sorted(["1.json", "100.exit", *kept])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_exits_of_other_users_are_left_to_them(node: Node) -> None:
    """A user could otherwise remove the exits of all others with many files of their own."""
    for number in range(EXITS_KEPT_MAX):
        os.chown(left(node, f"{1_000 + number}.exit", age_s=0), STRANGER, -1)
    oldest = left(node, "1.exit", age_s=100 * DAY_S)
    os.chown(oldest, STRANGER, -1)
    own = left(node, "2.exit", age_s=DAY_S)
    begin_a_rank(node)
    assert oldest.exists() and own.exists()
