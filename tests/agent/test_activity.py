"""The real agent and the real wrapper: the activity of a rank in the reports, and the time of its last line."""

from __future__ import annotations

import pytest

from tests.agent.api import WITHIN_S, Api
from tests.agent.node import Node, wait_until

LINE = ".100.output"
pytestmark = pytest.mark.slow


def test_the_agent_reports_that_a_rank_works_once_it_knows_what_is_usual(api: Api, node: Node) -> None:
    """The GPU of the tests draws what it always draws. Without NVML nothing is known."""
    node.rank("sleep", "600")
    node.agent(GPU_RECOVERY_INTERVAL_MS="50")
    wait_until(lambda: [0] in [one.get("activity") for heard in api.heard for one in heard.report.get("running", ())])
    first = next(heard.report["running"][0] for heard in api.heard if heard.report.get("running"))
    assert "activity" not in first


def test_the_wrapper_touches_a_file_for_a_line_and_removes_it_at_the_end(node: Node) -> None:
    """Before the first line it has the time of the epoch."""
    go = node.running.parent / "go"
    rank = node.rank("sh", "-c", f"until test -e {go}; do sleep 0.05; done; echo line; exec sleep 600")
    wait_until(lambda: node.files() == ["100.json"])
    assert (node.running / LINE).stat().st_mtime == 0
    go.touch()
    wait_until(lambda: (node.running / LINE).stat().st_mtime > 0)
    rank.terminate()
    rank.wait(WITHIN_S)
    assert not (node.running / LINE).exists()


def test_the_time_of_a_line_is_told_although_no_line_is_kept(node: Node) -> None:
    """A rank that prints is not quiet. With GPU_RECOVERY_LAST_WORDS=off only the text of its lines is dropped."""
    go = node.running.parent / "go"
    waits = f"until test -e {go}; do sleep 0.05; done; echo line; exec sleep 600"
    rank = node.rank("sh", "-c", waits, GPU_RECOVERY_LAST_WORDS="off")
    wait_until(lambda: node.files() == ["100.json"])
    assert (node.running / LINE).stat().st_mtime == 0
    go.touch()
    wait_until(lambda: (node.running / LINE).stat().st_mtime > 0)
    assert rank.stdout is not None and rank.stdout.readline() == b"line\n"
