"""The line about a repair: the order in the answer to a report, the report of the line, and what it changes."""

from __future__ import annotations

from typing import Any

import pytest
from gpu_recovery.core.heartbeat import AgentCommand, AgentCommandKind, AgentReport, ReportedRecord
from gpu_recovery.core.repair_record import ORDER_ID
from gpu_recovery.node_api.report_parser import ReportInvalid, parse_report
from gpu_recovery.node_api.router import NodeApi

from tests.recovery.heartbeat_world import IDS, Scene

LINE = "gpu-recovery ordered the reboot of this machine"
OLD, NEW = "11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222"
ORDER = AgentCommand(ORDER_ID, AgentCommandKind.RECORD, "", 1, 0, text=LINE)
BODY: dict[str, Any] = {"boot_id": NEW, "uptime_s": 5.0, "sequence": 1}


def kept(scene: Scene) -> Any:
    """The orders for the agent."""
    return scene.store.load_heartbeats(IDS[:1])[IDS[0]].orders


def test_the_order_is_repeated_until_the_machine_has_the_line(scene: Scene) -> None:
    """It is no command about a rank: a rank that has ended does not withdraw it."""
    scene.beats(0)
    assert scene.store.add_agent_command(IDS[0], ORDER)
    for _ in range(2):
        answer = scene.beats(0)
        assert answer.records == (ORDER,) and answer.commands == ()
        scene.passes(15)
    boot_id = scene.store.load_heartbeats(IDS[:1])[IDS[0]].boot_id
    answer = scene.beats(0, recorded=ReportedRecord(1, LINE, boot_id))
    assert answer.records == () and kept(scene) == {}
    history = scene.store.load_instance(IDS[0]).history
    assert history[-1].event == "RepairRecordFound" and history[-1].reason.endswith(LINE)


def test_the_line_of_an_earlier_repair_withdraws_no_order(scene: Scene) -> None:
    """The agent of the next boot finds it, and does not have the line of the present repair."""
    scene.beats(0)
    scene.store.add_agent_command(IDS[0], ORDER)
    assert scene.beats(0, recorded=ReportedRecord(0, "an older line", OLD)).records == (ORDER,)
    assert kept(scene) == {ORDER_ID: ORDER}


def test_a_report_says_which_line_the_machine_has() -> None:
    """And under which boot it was written. A line is one line of printable text."""
    recorded = {"epoch": 3, "text": f"{LINE}\nand more", "boot": OLD}
    assert parse_report("i-1", BODY | {"recorded": recorded}).recorded == ReportedRecord(3, f"{LINE} and more", OLD)
    assert parse_report("i-1", BODY).recorded is None


@pytest.mark.parametrize("wrong", [{"epoch": -1}, {"text": "x" * 501}, {"boot": "now"}, {"text": None}])
def test_a_malformed_line_is_refused_with_its_field(wrong: dict[str, Any]) -> None:
    """As any malformed field of a report."""
    recorded = {"epoch": 3, "text": LINE, "boot": OLD, **wrong}
    with pytest.raises(ReportInvalid, match="recorded"):
        parse_report("i-1", BODY | {"recorded": recorded})


def test_the_answer_has_the_line_only_where_it_is_ordered(scene: Scene) -> None:
    """An agent of an older release gets no unknown field otherwise."""
    scene.beats(0)
    api: Any = NodeApi.__new__(NodeApi)
    api._recovery, api._receiver = scene.recovery, scene.hearing
    report = AgentReport(IDS[0], scene.store.load_heartbeats(IDS[:1])[IDS[0]].boot_id, 100.0, 50)
    assert "records" not in api._receive(report, True, "role")
    scene.store.add_agent_command(IDS[0], ORDER)
    later = AgentReport(IDS[0], report.boot_id, 100.0, 51)
    assert api._receive(later, True, "role")["records"] == [{"epoch": 1, "text": LINE}]
