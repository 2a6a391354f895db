"""Sends signals by pidfd, so that a reused process number never receives them.

The number of a process that ends may be given to another process between a read of /proc and a signal. A pidfd stays
with its process. So the sender opens the pidfd, then compares the process with /proc, then sends.
"""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path

from gpu_recovery_agent.log import AgentLog
from gpu_recovery_agent.sensors import processes
from gpu_recovery_agent.sensors.processes import ProcessInfo

PIDFD_SIGNAL_PROCESS_GROUP = 4
"""Flag of pidfd_send_signal(2), since Linux 6.9: signal the process group that the process leads."""


class SignalSender:
    """Signals processes and process groups.

    Without pidfd, signals go by number directly after the comparison with /proc, and the log says so once. Pidfd is
    missing before Linux 5.3, in some builds of Python, and where a system call filter forbids it.
    """

    def __init__(self, host_proc: Path, log: AgentLog) -> None:
        self._proc, self._log = host_proc, log

    def to_process(self, pid: int, ticks: int, number: int) -> None:
        """Send signal `number` to the process that began at `ticks`.

        Raises:
            ProcessLookupError: the process has ended, or its pid belongs to another process.
            PermissionError: the agent may not signal the process.
        """
        descriptor = self._open(pid)
        try:
            self._compare(pid, ticks)
            if descriptor is None:
                os.kill(pid, number)
            else:
                signal.pidfd_send_signal(descriptor, number)
        finally:
            _close(descriptor)

    def to_group(self, member: ProcessInfo, number: int) -> None:
        """Send signal `number` to the process group of `member`.

        The number of a group is not reused while the group has a member. So `member` identifies the group, also if the
        process that led the group has ended. Such a group is signalled by number, and so is every group before Linux
        6.9.

        Raises:
            ProcessLookupError: the member has ended, or is in another group now.
            PermissionError: the agent may not signal any process of the group.
        """
        try:
            descriptor = self._open(member.group)
        except ProcessLookupError:
            descriptor = None
        try:
            if self._compare(member.pid, member.ticks).group != member.group:
                raise ProcessLookupError(errno.ESRCH, f"process {member.pid} is in another group")
            if descriptor is None or not _signal_group(descriptor, number):
                os.killpg(member.group, number)
        finally:
            _close(descriptor)

    def _open(self, pid: int) -> int | None:
        """Return a pidfd; None where there is no pidfd. Raises ProcessLookupError."""
        try:
            return os.pidfd_open(pid)
        except AttributeError:
            why = "this Python has no pidfd"
        except OSError as error:
            # pidfd_open(2) needs no permission: EPERM is the answer of a system call filter.
            if error.errno not in (errno.ENOSYS, errno.EPERM):
                raise
            why = f"pidfd_open: {error.strerror}"
        self._log.once("pidfd", f"{why}: signals are sent by process number")
        return None

    def _compare(self, pid: int, ticks: int) -> ProcessInfo:
        process = processes.read(self._proc, pid)
        if process is None or not process.is_alive or process.ticks != ticks:
            raise ProcessLookupError(errno.ESRCH, f"process {pid} has ended")
        return process


def _signal_group(leader: int, number: int) -> bool:
    """Signal the group of a leader by its pidfd; return False if this kernel cannot, or if the leader has ended."""
    try:
        signal.pidfd_send_signal(leader, number, None, PIDFD_SIGNAL_PROCESS_GROUP)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ESRCH):
            return False
        raise
    return True


def _close(descriptor: int | None) -> None:
    if descriptor is not None:
        os.close(descriptor)
