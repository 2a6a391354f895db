"""The agent as a process: killed, started again, doubled, stopped; a clock that jumps, a disk that takes nothing."""

from __future__ import annotations

import ast
import errno
import json
import os
import signal
from pathlib import Path

import gpu_recovery_agent
import pytest
from gpu_recovery_agent import clock, files
from gpu_recovery_agent.log import AgentLog
from gpu_recovery_agent.state import AgentState, AlreadyRunning

from tests.agent.api import Api, ok, refusal
from tests.agent.node import Node, wait_until
from tests.agent.test_protocol import exits_of, leave_exit

PACKAGE = Path(gpu_recovery_agent.__file__).parent
WALL_CLOCKS = {"time", "now", "utcnow", "today", "gmtime", "localtime", "strftime", "CLOCK_REALTIME", "time_ns"}
WALL_CLOCK_READS = {("wrapper.py", "time"), ("flight_dumps.py", "time_ns")}
"""Where the wall's clock is read: into the field `timestamp` of seed 000's file, which nobody reads, and beside the
records of PyTorch, which have no other clock. The agent itself reads none."""


@pytest.mark.slow
def test_an_exit_survives_a_killed_agent_and_is_told_by_the_next(api: Api, node: Node) -> None:
    """Nobody needs to be there when a rank ends."""
    agent = node.agent()
    api.count(1)
    agent.kill()
    agent.wait()
    begin = len(api.heard)
    assert node.rank("sh", "-c", "exit 3").wait() == 3
    assert node.files() == ["100.exit"]
    node.agent()
    reports = api.until(lambda reports: any(exits_of(one) for one in reports[begin:]))
    (gone,) = next(one for one in reports if exits_of(one))["exits"]
    assert (gone["rank"], gone["code"]) == (0, 3)
    wait_until(lambda: node.files() == [])


@pytest.mark.slow
def test_an_agent_that_is_killed_between_telling_and_hearing_tells_again(api: Api, node: Node) -> None:
    """The file is removed by an answer and by nothing else; its sequence still rises."""
    path = leave_exit(node, 0, code=1)
    api.lasting = refusal(500, "down", {"Retry-After": "3600"})
    agent = node.agent()
    wait_until(lambda: "500 down" in node.said())
    agent.kill()
    agent.wait()
    assert path.exists()
    api.lasting = ok()
    node.agent()
    reports = api.count(2)
    assert exits_of(reports[0]) == exits_of(reports[1]) == [0]
    assert reports[1]["sequence"] > reports[0]["sequence"]


@pytest.mark.slow
def test_faults_that_were_told_are_not_told_again_by_the_next_agent(api: Api, node: Node) -> None:
    """The kernel's log begins with the boot every time it is opened."""
    node.kernel_says("NVRM: Xid (PCI:0000:10:00): 79, pid=7", at_s=50.0)
    agent = node.agent()
    api.until(lambda reports: any("xids" in one for one in reports))
    api.count(len(api.heard) + 1)
    agent.terminate()
    assert agent.wait(60) == 0
    begin = len(api.heard)
    node.agent()
    api.count(begin + 2)
    node.kernel_says("NVRM: Xid (PCI:0000:10:00): 79, pid=8", at_s=60.0)
    reports = api.until(lambda reports: any("xids" in one for one in reports[begin:]))
    told = [one["xids"] for one in reports[begin:] if "xids" in one]
    assert [one["count"] for one in told[0]] == [2]


@pytest.mark.slow
def test_a_fault_is_told_at_once_and_with_the_gpus_uuid(api: Api, node: Node) -> None:
    """The next report would have been due in five minutes."""
    api.lasting = ok(next_s=300)
    api.script = [ok(), ok(), ok(next_s=300)]
    node.agent()
    api.until(lambda reports: any("inventory" in one for one in reports))
    api.count(3)
    node.kernel_says("NVRM: Xid (PCI:0000:10:00): 154, GPU recovery action changed from 0x1 (X) to 0x2 (Node Reboot)")
    told = api.next(lambda report: "xids" in report)["xids"]
    assert [(one["xid"], one["gpu"], one["count"], one["action"]) for one in told] == [(154, "GPU-0", 1, 2)]


@pytest.mark.slow
def test_a_hanging_gpu_does_not_stop_the_heartbeat(api: Api, node: Node) -> None:
    """Reports go on, and say since when nothing was heard of the GPUs; one reader, however long it lasts."""
    node.set_nvml(hang="nvmlDeviceGetUUID")
    node.agent(GPU_RECOVERY_NVML_DEADLINE_MS="1000")
    reports = api.until(lambda reports: any(one["health"]["status"] == "impaired" for one in reports))
    sentence = next(one["health"]["sentence"] for one in reports if one["health"]["status"] == "impaired")
    assert sentence.startswith("NVML has not answered for ") and sentence.endswith(" s")
    assert not any("inventory" in one for one in reports)
    node.set_nvml()
    api.until(lambda reports: reports[-1]["health"]["status"] == "ok")


@pytest.mark.slow
def test_a_second_agent_on_the_node_ends(api: Api, node: Node) -> None:
    """Two would take each other's sequence; the lock goes with the process that holds it, however it ends."""
    first = node.agent()
    api.count(1)
    assert node.agent().wait(60) == 78
    assert "another agent holds" in node.said()
    first.kill()
    first.wait()
    third = node.agent()
    api.count(len(api.heard) + 1)
    assert third.poll() is None


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_ends_the_agent_cleanly_and_no_rank(api: Api, node: Node, number: int) -> None:
    """An update of the agent is no end of a training."""
    rank = node.rank("sleep", "600")
    agent = node.agent()
    api.until(lambda reports: any(one["running"] for one in reports))
    agent.send_signal(number)
    assert agent.wait(60) == 0
    assert rank.poll() is None and node.files() == ["100.json"]


@pytest.mark.slow
def test_a_state_that_cannot_be_kept_is_said_once_and_the_heartbeat_goes_on(api: Api, node: Node) -> None:
    """A full disk stops no agent: what it costs is the memory of a restart."""
    node.state.mkdir()
    (node.state / "state.json").mkdir()  # a rename onto it fails, for root as well
    node.agent()
    assert [one["sequence"] for one in api.count(4)[:4]] == [1, 2, 3, 4]
    assert node.said().count("cannot be written") == 1


def test_the_state_of_another_boot_is_not_taken(tmp_path: Path) -> None:
    """Sequences, times and orders count from the boot."""
    first = AgentState(tmp_path, "boot-1", AgentLog())
    first.open()
    first.reported_s, first.executed["o-1"] = 7.0, 5.0
    assert [first.next_sequence(), first.next_sequence()] == [1, 2]
    with pytest.raises(AlreadyRunning):
        AgentState(tmp_path, "boot-1", AgentLog()).open()
    first.close()
    same, other = AgentState(tmp_path, "boot-1", AgentLog()), AgentState(tmp_path, "boot-2", AgentLog())
    same.open()
    assert (same.sequence, same.reported_s, same.executed) == (2, 7.0, {"o-1": 5.0})
    same.close()
    other.open()
    assert (other.sequence, other.reported_s, other.executed) == (0, -1.0, {})


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b'{"boot_id": "b", "sequence": "x", "told_s": [], "obeyed": 3}'])
def test_a_state_that_is_broken_is_begun_anew(tmp_path: Path, raw: bytes, capfd: pytest.CaptureFixture[str]) -> None:
    """The server says what it heard last; there is no reason to end."""
    (tmp_path / "state.json").write_bytes(raw)
    state = AgentState(tmp_path, "b", AgentLog())
    state.open()
    assert (state.sequence, state.reported_s, state.executed) == (0, -1.0, {})
    assert ("cannot be read" in capfd.readouterr().err) == (not raw.startswith(b'{"'))


def test_a_full_disk_is_said_in_its_own_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Once, when it begins and when it is over; and no half file is left."""
    state = AgentState(tmp_path, "b", AgentLog())
    state.open()
    with monkeypatch.context() as full:
        full.setattr(
            files.os, "fsync", lambda _: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left on device"))
        )
        assert [state.next_sequence(), state.next_sequence()] == [1, 2]
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]
    assert capfd.readouterr().err.count("No space left on device; the agent continues") == 1
    assert state.next_sequence() == 3
    assert "can be written again" in capfd.readouterr().err and (tmp_path / "state.json").exists()


def test_no_wall_clock_is_read_anywhere_in_the_agent() -> None:
    """A clock that is set forwards, back or by a day changes nothing but the wait in a dump of PyTorch."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr in WALL_CLOCKS:
                found.add((path.name, node.attr))
            if isinstance(node, ast.ImportFrom) and node.module in ("time", "datetime"):
                found |= {(path.name, one.name) for one in node.names if one.name in WALL_CLOCKS}
    assert found == WALL_CLOCK_READS


def test_the_agent_has_two_clocks_which_nobody_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are those that the kernel counts by itself."""
    asked = []
    monkeypatch.setattr(clock.time, "clock_gettime", lambda one: asked.append(one) or 1.0)
    clock.uptime_s(), clock.kernel_log_s()
    assert asked == [clock.time.CLOCK_BOOTTIME, clock.time.CLOCK_MONOTONIC]


@pytest.mark.slow
def test_a_jump_of_the_clock_changes_no_report(api: Api, node: Node) -> None:
    """The time that the server sends is anything, and that of the files as well."""
    leave_exit(node, 0, code=1)
    for path in node.running.iterdir():
        os.utime(path, (4e9, 4e9))
    api.lasting = ok(ts=4_000_000_000)
    node.rank("sleep", "600", rank=1)
    wait_until(lambda: "101.json" in node.files())
    content = json.loads((node.running / "101.json").read_text())
    (node.running / "101.json").write_text(json.dumps({**content, "timestamp": 1}))
    node.agent()
    first, second = api.count(2)[:2]
    assert exits_of(first) == [0] and first["running"][0]["rank"] == 1
    assert 0 < second["uptime_s"] - first["uptime_s"] < 60
