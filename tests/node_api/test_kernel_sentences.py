"""Errors of the driver without an XID: from the kernel log over the agent's report to the record of the instance."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gpu_recovery.auth.tokens import AskedToken, issue
from gpu_recovery.aws.token_store import DynamoTokenStore
from gpu_recovery.core.health_signals import HealthKind, HealthStatus
from gpu_recovery.core.instance.record import Instance, InstanceStatus, RepairLevel
from gpu_recovery_agent.log import AgentLog
from gpu_recovery_agent.report import ReportContent, body, encoded
from gpu_recovery_agent.sensors.kernel_log import KernelLogSensor

from tests.aws.issuer_keys import NODE_KEY
from tests.aws.records import NOW, A, instance
from tests.lambdas.conftest import Functions
from tests.node_api.test_router import BOOT, REPORTS, Agent, Ear

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")

UVM = "NVRM: nvGpuOpsReportFatalError: uvm encountered global fatal error 0x60, requiring os reboot to recover."
RESET = "NVRM: nvAssertOkFailedNoLog: Assertion failed: Reset required [NV_ERR_RESET_REQUIRED] (0x00000062) returned"
EARLY = ", logged before the agent started"
"""End of a sentence about a line that the kernel log had when the agent began to read it."""
HEARTBEAT = "NVRM: GPU0 _kgspRpcRecvPoll: GSP RM heartbeat timed out"
MEASUREMENT = "NVRM: _kgspIsHeartbeatTimedOut: Heartbeat timed out, currentTimeMs 38 heartbeat 0 diff 38 timeout 5200"


@pytest.fixture
def agent(functions: Functions) -> Agent:
    """The agent of instance A, on which no job works."""
    functions.store.save_instance(instance(A))
    tokens = DynamoTokenStore(functions.store.table.client, functions.store.table.name)
    return Agent(functions, Ear(), tokens, issue(tokens, NODE_KEY, A, NOW, "a test", AskedToken()))


def report_of(kmsg: Path, *lines: str) -> dict[str, Any]:
    """The request of an agent that finds these lines in its kernel log."""
    kmsg.write_text("".join(f"4,{number},{number}000000,-;{line}\n" for number, line in enumerate(lines, 1)))
    content = ReportContent(BOOT, xids=KernelLogSensor(kmsg, AgentLog()).poll())
    made = body(content, sequence=7, uptime_s=1_000.0, kernel_log_s=900.0, interval_s=15.0)
    return dict(json.loads(encoded(made)))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (UVM, "XID 154 on an unknown GPU, the driver asks for recovery action 2 (a reboot)"),
        (RESET, "XID 154 on an unknown GPU, the driver asks for recovery action 1 (a reset of the GPU)"),
        (HEARTBEAT, "XID 120 on an unknown GPU"),
        (
            "NVRM: Xid (PCI:0000:10:00): 45, pid=18, name=python3, Ch 1 caused by previous Xid 79",
            "XID 79 on 0000:10:00",
        ),
        ("NVRM: Xid (PCI:0000:3b:00 GPU-I:01 GPU-CI:02): 95, pid=9, name=python3, Uncontained", "XID 95 on 0000:3b:00"),
        (
            "NVRM: Xid (PCI:0000:10:00): 154, GPU recovery action changed from 0x0 (None) to 0x7 (System Reboot)",
            "XID 154 on 0000:10:00, the driver asks for recovery action 7 (a reboot of the system)",
        ),
        (
            "NVRM: Xid (PCI:0000:10:00): 154, GPU recovery action changed from 0x0 (None) to 0x5 (GPU Reset Bus)",
            "XID 154 on 0000:10:00, the driver asks for recovery action 6 (a reset of the GPU's bus)",
        ),
    ],
)
def test_a_sentence_without_an_xid_makes_the_instance_be_checked(
    agent: Agent, tmp_path: Path, line: str, words: str
) -> None:
    """The record keeps what was reported. If the check cannot tell, the report alone asks for the reboot."""
    assert agent.call(REPORTS, report_of(tmp_path / "kmsg", "systemd: started", line)).status == 200
    record: Instance = agent.functions.instance()
    report = record.health[HealthKind.NODE_AGENT]
    assert (report.status, report.sentence) == (HealthStatus.IMPAIRED, f"{words}{EARLY}")
    assert report.fault is not None and report.fault.rung is RepairLevel.REBOOT
    assert record.status is InstanceStatus.CHECKING and record.check is not None


@pytest.mark.parametrize(
    ("action", "words"),
    [
        ("0x3 (Drain P2P)", "action 3 (an end of the peer-to-peer traffic)"),
        ("0x5 (Recover IMEX Domain)", "action 5 (a recovery of the IMEX domain)"),
        ("0x8 (Replace Cooling)", "action 8 (not known here)"),
        ("0xffffffff (Unknown)", "action 4294967295 (not known here)"),
    ],
)
def test_an_action_that_no_reboot_carries_out_makes_the_instance_be_checked_and_no_more(
    agent: Agent, tmp_path: Path, action: str, words: str
) -> None:
    """The check asks the driver again. A check that could not tell does not turn the request into a reboot."""
    line = f"NVRM: Xid (PCI:0000:10:00): 154, GPU recovery action changed from 0x0 (None) to {action}"
    assert agent.call(REPORTS, report_of(tmp_path / "kmsg", line)).status == 200
    record = agent.functions.instance()
    assert record.status is InstanceStatus.CHECKING
    assert record.health[HealthKind.NODE_AGENT].fault is None
    assert words in record.health[HealthKind.NODE_AGENT].sentence


FOLLOWING = "NVRM: Xid (PCI:0000:10:00): 172, pid=7, name=python3"


def test_an_error_that_follows_another_error_is_a_reason_to_check_without_that_other(
    agent: Agent, tmp_path: Path
) -> None:
    """As the health check judges it: 172 follows a 48, and alone it is a suspicion; a 45 alone never is."""
    forced = "NVRM: Xid (PCI:0000:10:00): 45, pid=7, name=python3, Ch 00000001"
    assert agent.call(REPORTS, report_of(tmp_path / "kmsg", forced)).status == 200
    assert agent.functions.instance().status is InstanceStatus.AVAILABLE
    application = "NVRM: Xid (PCI:0000:10:00): 13, Graphics Exception"
    with_cause = report_of(tmp_path / "kmsg", application, FOLLOWING) | {"sequence": 8}
    assert agent.call(REPORTS, with_cause).status == 200
    assert agent.functions.instance().status is InstanceStatus.AVAILABLE
    alone = report_of(tmp_path / "kmsg", application.replace(":10:", ":11:"), forced, FOLLOWING) | {"sequence": 9}
    assert agent.call(REPORTS, alone).status == 200
    record = agent.functions.instance()
    assert record.status is InstanceStatus.CHECKING
    assert record.health[HealthKind.NODE_AGENT].sentence == f"XID 172 on 0000:10:00{EARLY}"


def test_other_sentences_of_the_driver_are_not_reported(agent: Agent, tmp_path: Path) -> None:
    """A healthy driver prints them."""
    benign = "NVRM: RmFetchGspRmImages: Failed to load gsp_log_ga10x.bin, no GSP-RM logs will be printed (non-fatal)"
    sent = report_of(tmp_path / "kmsg", MEASUREMENT, benign)
    assert "xids" not in sent
    assert agent.call(REPORTS, sent).status == 200
    assert agent.functions.instance().status is InstanceStatus.AVAILABLE
