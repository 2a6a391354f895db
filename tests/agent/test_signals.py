"""Signals reach the process that was compared with /proc, even if its number is reused meanwhile."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from gpu_recovery_agent import signals
from gpu_recovery_agent.log import AgentLog
from gpu_recovery_agent.sensors import processes
from gpu_recovery_agent.sensors.processes import ProcessInfo
from gpu_recovery_agent.signals import SignalSender

PROC = Path("/proc")
TERM = signal.SIGTERM


class Children:
    """Processes of the test, each the leader of its own group."""

    def __init__(self) -> None:
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, *command: str) -> tuple[subprocess.Popen[bytes], ProcessInfo]:
        child = subprocess.Popen(command or ("sleep", "600"), process_group=0, stdout=subprocess.PIPE)
        self.started.append(child)
        found = processes.read(PROC, child.pid)
        assert found is not None and found.group == child.pid
        return child, found


@pytest.fixture
def children() -> Iterator[Children]:
    found = Children()
    yield found
    for child in found.started:
        if child.poll() is None:
            child.kill()
        child.communicate(timeout=60)


@pytest.fixture
def sender() -> SignalSender:
    return SignalSender(PROC, AgentLog())


@pytest.fixture
def no_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal by number fails the test."""

    def refuse(*_: Any) -> NoReturn:
        raise AssertionError("a signal was sent by number")

    monkeypatch.setattr(signals.os, "kill", refuse)
    monkeypatch.setattr(signals.os, "killpg", refuse)


Send = Callable[[SignalSender, ProcessInfo], None]
WAYS = [
    pytest.param(lambda sender, found: sender.to_process(found.pid, found.ticks, TERM), id="process"),
    pytest.param(lambda sender, found: sender.to_group(found, TERM), id="group"),
]


@pytest.mark.parametrize("send", WAYS)
def test_a_signal_reaches_the_process_that_is_meant(sender: SignalSender, children: Children, send: Send) -> None:
    """The process is a real process of this machine."""
    child, found = children.start()
    send(sender, found)
    assert child.wait(60) == -TERM


@pytest.mark.parametrize("send", WAYS)
def test_a_process_with_other_start_ticks_is_left_alone(sender: SignalSender, children: Children, send: Send) -> None:
    """Its pid was given away before the pidfd was opened."""
    child, found = children.start()
    with pytest.raises(ProcessLookupError):
        send(sender, ProcessInfo(found.pid, found.state, found.parent, found.group, found.ticks - 1))
    assert child.poll() is None


def test_a_pid_that_is_given_away_after_the_comparison_receives_no_signal(
    sender: SignalSender, children: Children, no_numbers: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process ends between comparison and signal; a signal by number would reach its successor."""
    child, found = children.start()

    def end_after_reading(proc: Path, pid: int) -> ProcessInfo | None:
        read = processes_read(proc, pid)
        signal.pidfd_send_signal(os.pidfd_open(pid), signal.SIGKILL)
        child.wait(60)
        return read

    processes_read = processes.read
    monkeypatch.setattr(signals.processes, "read", end_after_reading)
    with pytest.raises(ProcessLookupError):
        sender.to_process(found.pid, found.ticks, TERM)


def test_a_group_without_its_leader_is_reached_through_a_member(sender: SignalSender, children: Children) -> None:
    """A pipeline may outlive the shell that began it."""
    leader, found = children.start("sh", "-c", "sleep 600 & echo $!")
    assert leader.stdout is not None
    member_pid = int(leader.stdout.readline())
    leader.wait(60)
    member = processes.read(PROC, member_pid)
    assert member is not None and member.group == found.pid
    sender.to_group(member, TERM)
    assert leader.stdout.read() == b""  # the pipe closes when the member has ended


def _refusing(number: int) -> Callable[..., NoReturn]:
    def refuse(*_: Any) -> NoReturn:
        raise OSError(number, os.strerror(number))

    return refuse


@pytest.mark.parametrize("send", WAYS)
@pytest.mark.parametrize("missing", ["python", "kernel", "filter"])
def test_without_pidfd_the_signal_goes_by_number_and_the_log_says_so_once(
    sender: SignalSender,
    children: Children,
    send: Send,
    missing: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Python may be built without pidfd, the kernel may be too old, and a filter may forbid the system call."""
    if missing == "python":
        monkeypatch.delattr(signals.os, "pidfd_open")
    else:
        monkeypatch.setattr(signals.os, "pidfd_open", _refusing(errno.ENOSYS if missing == "kernel" else errno.EPERM))
    for _ in range(2):
        child, found = children.start()
        with pytest.raises(ProcessLookupError):
            send(sender, ProcessInfo(found.pid, found.state, found.parent, found.group, found.ticks - 1))
        assert child.poll() is None
        send(sender, found)
        assert child.wait(60) == -TERM
    assert capfd.readouterr().err.count("signals are sent by process number") == 1


def test_a_kernel_without_groups_of_pidfd_signals_the_group_by_number(
    sender: SignalSender, children: Children, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before Linux 6.9 the flag is invalid."""
    child, found = children.start()
    monkeypatch.setattr(signals.signal, "pidfd_send_signal", _refusing(errno.EINVAL))
    sender.to_group(found, TERM)
    assert child.wait(60) == -TERM


def test_a_process_of_another_user_is_a_permission_error(
    sender: SignalSender, children: Children, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller tells the operator that CAP_KILL is missing."""
    _, found = children.start()
    monkeypatch.setattr(signals.signal, "pidfd_send_signal", _refusing(errno.EPERM))
    with pytest.raises(PermissionError):
        sender.to_process(found.pid, found.ticks, TERM)
    with pytest.raises(PermissionError):
        sender.to_group(found, TERM)
