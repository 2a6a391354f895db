"""The line that says who ordered a reboot: in the journal, in a file, and found again after the boot."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gpu_recovery_agent import responses
from gpu_recovery_agent.log import AgentLog
from gpu_recovery_agent.repair_record import FILE_BYTES_MAX, RepairRecord, WrittenLine
from gpu_recovery_agent.responses import RepairLine

from tests.agent.api import WITHIN_S, Api, ok
from tests.agent.node import Node

LINE = "gpu-recovery ordered the reboot of i-1; decision: XID 79"
OLD, NEW = "11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222"
ORDER = {"epoch": 5, "text": LINE}


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[socket.socket]:
    """The socket of a journal."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as found:
        found.bind(str(tmp_path / "journal"))
        found.settimeout(WITHIN_S)
        yield found


def record(folder: Path, boot_id: str, file: str = "log/repairs.log") -> RepairRecord:
    """The lines of a machine, as the agent of a boot begins with them."""
    made = RepairRecord(folder / file, folder / "journal", boot_id, AgentLog())
    made.restore()
    return made


def test_the_line_is_written_once_and_found_again_after_the_boot(tmp_path: Path, journal: socket.socket) -> None:
    """In the journal in its native protocol, and in the file with the boot under which it was written."""
    before = record(tmp_path, OLD)
    assert before.unreported is None
    assert before.add((RepairLine(5, LINE),))
    before.acknowledge(before.unreported)
    assert before.unreported is None
    assert before.add((RepairLine(5, LINE),))  # ordered again: the server has not heard of the line
    entry = journal.recv(4_096).decode()
    assert f"MESSAGE={LINE}\n" in entry and "SYSLOG_IDENTIFIER=gpu-recovery\n" in entry
    assert (tmp_path / "log/repairs.log").read_text() == f"boot={OLD} repair=5 {LINE}\n"
    after = record(tmp_path, NEW)
    assert after.unreported == WrittenLine(5, LINE, OLD)
    after.acknowledge(after.unreported)
    assert after.unreported is None and not after.add(())


def test_the_newest_line_counts_and_the_file_stays_small(tmp_path: Path) -> None:
    """Text that is no line of ours is passed over."""
    file = tmp_path / "log/repairs.log"
    file.parent.mkdir()
    file.write_text("x" * (FILE_BYTES_MAX + 1) + f"\nboot={OLD} repair=4 earlier\nsomebody's note\n")
    made = record(tmp_path, NEW)
    assert made.unreported == WrittenLine(4, "earlier", OLD)
    made.add((RepairLine(5, LINE),))
    assert file.read_text() == f"boot={NEW} repair=5 {LINE}\n" and (file.parent / "repairs.log.1").exists()


def test_a_file_that_cannot_be_written_stops_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Said once. The journal has the line nevertheless, and nothing is reported as written."""
    (tmp_path / "log").write_text("no folder")
    made = record(tmp_path, NEW)
    assert not made.add((RepairLine(5, LINE),)) and made.unreported is None
    assert "cannot be written" in capfd.readouterr().err


def test_lines_that_are_switched_off_are_not_written(tmp_path: Path) -> None:
    """GPU_RECOVERY_REPAIR_LOG=off."""
    made = RepairRecord(None, None, NEW, AgentLog())
    made.restore()
    assert not made.add((RepairLine(5, LINE),)) and made.unreported is None


@pytest.mark.parametrize(
    "entry",
    [None, 5, {}, {"epoch": 5}, {"epoch": -1, "text": LINE}, ORDER | {"text": "a\nb"}, ORDER | {"text": "x" * 501}],
)
def test_an_order_that_is_no_line_is_not_read(entry: Any) -> None:
    """A file of one line each must stay one."""
    body = json.dumps({"ok": True, "records": [entry, ORDER]}).encode()
    assert responses.read(200, body, None).lines == (RepairLine(5, LINE),)


@pytest.mark.slow
def test_an_agent_writes_the_line_and_reports_it(node: Node, api: Api, journal: socket.socket) -> None:
    """At once, and the agent that starts after it reports the line again, until it is confirmed."""
    api.script = [ok(), ok(records=[ORDER])]
    agent = node.agent()
    reported = api.next(lambda report: "recorded" in report, since=0)["recorded"]
    assert (reported["epoch"], reported["text"]) == (5, LINE)
    assert LINE in journal.recv(4_096).decode()
    agent.terminate()
    assert agent.wait(WITHIN_S) == 0
    heard = len(api.heard)
    node.agent()
    assert api.next(lambda report: "recorded" in report, since=heard)["recorded"] == reported


@pytest.mark.slow
def test_the_last_report_of_an_agent_gets_the_line(node: Node, api: Api, journal: socket.socket) -> None:
    """SIGTERM, as before a reboot: the agent reports once more, and writes what the answer says before it ends."""
    api.lasting = ok(next_s=300)
    agent = node.agent()
    api.count(1)
    api.lasting = ok(next_s=300, records=[ORDER])
    agent.terminate()
    assert agent.wait(WITHIN_S) == 0, node.said()
    assert LINE in journal.recv(4_096).decode()
    assert LINE in (node.state.parent / "log/repairs.log").read_text()
