"""What happened before the agent, and what another watch of the machine saw: reported once, and marked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gpu_recovery_agent.log import AgentLog
from gpu_recovery_agent.state import AgentState

from tests.agent.api import Api
from tests.agent.node import Node

pytestmark = pytest.mark.slow
AT_BOOT = "NVRM: Xid (PCI:0000:10:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


def xids_of(reports: list[Any]) -> list[Any]:
    return [xid for one in reports for xid in one.get("xids", [])]


def test_an_xid_at_boot_is_reported_once_and_marked(api: Api, node: Node) -> None:
    """NVSentinel#1532: a monitor that starts late misses it. The next agent of this boot repeats nothing."""
    node.kernel_says(AT_BOOT, at_s=3.5)
    agent = node.agent()
    api.until(xids_of)
    api.count(len(api.heard) + 2)
    agent.terminate()
    assert agent.wait(60) == 0
    node.agent()
    api.count(len(api.heard) + 3)
    (told,) = xids_of(api.count(1))
    assert (told["xid"], told["early"], told["count"]) == (79, True, 1)


def test_an_xid_while_the_agent_runs_is_not_marked(api: Api, node: Node) -> None:
    """Its time is later than the start of the agent."""
    node.agent()
    api.count(2)
    node.kernel_says(AT_BOOT, at_s=1e9)
    (told,) = xids_of(api.until(xids_of))
    assert "early" not in told


def test_the_state_of_an_earlier_agent_of_this_boot_names_the_reported_xids(tmp_path: Path) -> None:
    """Both agents use the same key of state.json, so an update repeats no XID, and neither does the way back."""
    stored = {"boot_id": "b", "sequence": 4, "told_s": 1.0, "obeyed": {}, "witnessed": [48, "x", 79], "untold": []}
    (tmp_path / "state.json").write_text(json.dumps(stored))
    state = AgentState(tmp_path, "b", AgentLog())
    state.open()
    assert state.reported_from_dcgm == [48, 79]
    state.save()
    state.close()
    assert json.loads((tmp_path / "state.json").read_text())["witnessed"] == [48, 79]


def test_an_xid_that_only_the_ecs_agent_saw_is_reported_once(api: Api, node: Node) -> None:
    """The kernel log is off: the file is the only source. The next agent of this boot repeats nothing."""
    path = node.environment["GPU_RECOVERY_ECS_GPU_METRICS"]
    minute = 0

    def write() -> None:
        nonlocal minute
        minute += 1
        content = {"timestamp": f"2026-07-14T19:{minute:02}:51Z", "healthy": False, "unhealthy_reason": "XID_48"}
        with open(path, "w", encoding="ascii") as file:
            file.write(json.dumps({**content, "gpus": []}))

    def renewed(reports: list[Any]) -> list[Any]:
        if len(reports) > 8 * minute:
            write()
        return xids_of(reports)

    agent = node.agent(HOST_KMSG="off")
    api.until(renewed)
    api.count(len(api.heard) + 2)
    agent.terminate()
    assert agent.wait(60) == 0
    node.agent(HOST_KMSG="off")
    seen = len(api.heard)
    api.until(lambda reports: renewed(reports[seen:]) or any("XID_48" in str(one) for one in reports[seen + 10 :]))
    (told,) = xids_of(api.count(1))
    assert (told["xid"], told["by"], told["gpu"], told["count"]) == (48, "dcgm", "", 1)
