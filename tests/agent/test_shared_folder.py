"""The agent beside users who write to the ranks' folder too: real agents, real ranks, files of another user."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.agent.api import WITHIN_S, Api
from tests.agent.node import Node, wait_until
from tests.agent.test_protocol import boot_id, exits_of

STRANGER = 65_534
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.getuid() != 0, reason="only root can give files to another user"),
]


def of_a_stranger(path: Path, content: dict[str, Any]) -> None:
    """Put a file of another user into the folder in one step, as that user can."""
    temporary = path.with_name(f".{path.name}")
    temporary.write_text(json.dumps(content))
    os.chown(temporary, STRANGER, -1)
    temporary.replace(path)


def ranks_in(report: dict[str, Any]) -> list[tuple[str, int]]:
    return [(one["job"], one["rank"]) for one in report["running"]]


def test_a_rank_is_reported_beside_thousands_of_files_of_another_user(api: Api, node: Node) -> None:
    """Each file names a process in another namespace, for which the agent would scan /proc."""
    node.running.mkdir()
    claim = {"job_id": "run-9", "attempt": 1, "rank": 0, "remote_pid": 1, "pid_namespace": 7, "boot_id": boot_id()}
    node.rank("sleep", "600")
    wait_until(lambda: node.files() == ["100.json"])
    for number in range(3_000):
        of_a_stranger(node.running / f"0{number}.json", {**claim, "start_ticks": number})
    node.agent()
    reports = api.until(lambda reports: sum(ranks_in(one) == [("run-1", 0)] for one in reports) >= 5)
    assert [ranks_in(one) for one in reports] == [[("run-1", 0)]] * len(reports)
    assert node.said().count("a look reads 256 files") == 1


def test_a_file_of_another_user_makes_no_process_a_rank(api: Api, node: Node) -> None:
    """All that the file says is true of a process of root."""
    rank = node.rank("sleep", "600")
    true = json.loads(wait_until(lambda: node.files() and (node.running / "100.json").read_text()))
    of_a_stranger(node.running / "victim.json", {**true, "job_id": "victim", "running_log_id": 200})
    node.agent()
    reports = api.count(3)
    assert [ranks_in(one) for one in reports] == [[("run-1", 0)]] * len(reports)
    assert f"process {rank.pid} is of user 0" in node.said()


def test_an_exit_of_another_user_does_not_end_a_rank_that_runs(api: Api, node: Node) -> None:
    """The rank stays reported, and its own exit is reported at its end."""
    rank = node.rank("sleep", "600")
    node.agent()
    api.until(lambda reports: any(ranks_in(one) for one in reports))
    begin = len(api.heard)
    for name in ("100.exit", "other.exit"):
        of_a_stranger(node.running / name, {"job_id": "run-1", "attempt": 1, "rank": 0, "code": 1, "uptime_s": 1.0})
    wait_until(lambda: node.files() == ["100.exit.refused", "100.json", "other.exit.refused"])
    reports = api.count(len(api.heard) + 2)[begin:]
    assert [(ranks_in(one), exits_of(one)) for one in reports] == [([("run-1", 0)], [])] * len(reports)
    rank.terminate()
    assert rank.wait(WITHIN_S) == 143
    reports = api.until(lambda reports: any(exits_of(one) for one in reports))
    (ended,) = next(one["exits"] for one in reports if exits_of(one))
    assert ended["signal"] == 15
