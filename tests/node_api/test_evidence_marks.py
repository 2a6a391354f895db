"""Marks of an XID in a report: logged before the agent started, or seen by another source only."""

from __future__ import annotations

from typing import Any

import pytest
from gpu_recovery.core.heartbeat import AgentReport
from gpu_recovery.core.xid import NAMED_XID, XidProfile
from gpu_recovery.node_api.gpu_health import health_event
from gpu_recovery.node_api.report_parser import ReportInvalid, parse_report

from tests.core.build import NOW

BOOT = "4d8e8b0a-37a5-4c13-9f1c-0d2f5a1f9b11"


def report(**xid: Any) -> AgentReport:
    body = {"boot_id": BOOT, "uptime_s": 60, "sequence": 1, "running": [], "health": {"status": "ok"}}
    return parse_report("i-1", {**body, "xids": [{"xid": 79, "gpu": "0000:10:00", **xid}]})


def sentence(**xid: Any) -> str:
    event = health_event(None, report(**xid), True, NOW, XidProfile.NVIDIA)
    assert event is not None
    return event.sentence


@pytest.mark.parametrize(
    ("marks", "ends"),
    [
        ({}, "XID 79 on 0000:10:00"),
        ({"early": True}, "XID 79 on 0000:10:00, logged before the agent started"),
        (
            {"by": "dcgm", "gpu": ""},
            "XID 79 on an unknown GPU, reported by DCGM of the ECS agent and not by the kernel log",
        ),
        ({"by": "another"}, "XID 79 on 0000:10:00"),
    ],
)
def test_the_sentence_says_where_the_xid_comes_from(marks: dict[str, Any], ends: str) -> None:
    """And stays readable for whoever searches it for XIDs."""
    assert sentence(**marks) == ends
    assert [int(match["xid"]) for match in NAMED_XID.finditer(ends)] == [79]


@pytest.mark.parametrize("marks", [{"early": "yes"}, {"by": 7}, {"by": "x" * 1_000}])
def test_a_malformed_mark_is_named(marks: dict[str, Any]) -> None:
    """The report is refused, as for every other field of an XID."""
    with pytest.raises(ReportInvalid):
        report(**marks)
