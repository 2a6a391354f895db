"""The command of a rank: started in a process group of its own, waited for, and ended with all that it began.

It is forked here rather than by `subprocess`, because its pid has to be in a file before the first instruction of it
runs: the child waits at a gate until the file is written.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, Protocol

from gpu_recovery_agent import clock

FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
NOT_FOUND, NOT_EXECUTABLE = 127, 126
REST_ENDS_WITHIN_S = 5.0
POLL_S = 0.5
"""Between two questions whether a signal is due."""
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
_DEFAULT_IN_COMMAND = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTTOU)  # Python ignores the first two, we the third


@dataclass(frozen=True)
class Ended:
    """How the command ended: one of `code` and `signal`."""

    code: int | None = None
    signal: int | None = None

    @property
    def status(self) -> int:
        """As a shell gives it."""
        return self.code if self.code is not None else 128 + (self.signal or 0)


class SignalPolicy(Protocol):
    """Who decides what the command's group gets: a signal, or 0 for none."""

    def on_signal(self, number: int) -> int:
        """Upon a signal of FORWARDED that came to this process."""

    def due(self) -> int:
        """By itself; it is asked every LOOK_S."""


class Command:
    """One command, held at its gate until `go`. The signals of FORWARDED and SIGCHLD stay blocked in this process.

    ends: the descriptors that it has in the place of some of ours, by their number there.
    """

    def __init__(
        self, arguments: Sequence[str], environment: Mapping[str, str], ends: Mapping[int, int] | None = None
    ) -> None:
        self._before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, *FORWARDED})
        _prctl(PR_SET_CHILD_SUBREAPER, 1)  # orphans become our children also where we are not the first process
        waits, self._gate = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._gate)
            self._become(arguments, environment, waits, ends or {})
        os.close(waits)
        with contextlib.suppress(OSError):  # the child does it too: whoever comes first
            os.setpgid(self.pid, self.pid)
        _to_the_foreground(self.pid)

    def go(self) -> None:
        """Opens the gate."""
        with contextlib.suppress(BrokenPipeError):  # it was killed already; how it ended is told by `wait`
            os.write(self._gate, b"g")
        os.close(self._gate)

    def wait(self, judge: SignalPolicy) -> Ended:
        """Signals the command's group as `judge` says and reaps every orphan, until the command itself has ended."""
        while True:
            if (ended := self._reaped()) is not None:
                return ended
            told = signal.sigtimedwait({signal.SIGCHLD, *FORWARDED}, POLL_S)
            if told is not None and told.si_signo != signal.SIGCHLD:
                self._signal(judge.on_signal(told.si_signo))
            self._signal(judge.due())

    def _signal(self, number: int) -> None:
        if number:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def _reaped(self) -> Ended | None:
        found = None
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return found
            if pid == 0:
                return found
            if pid == self.pid:
                code = os.waitstatus_to_exitcode(status)
                found = Ended(code=code) if code >= 0 else Ended(signal=-code)

    def end_the_rest(self) -> None:
        """Kills what the command left behind, as the end of a container does: it may hold GPUs.

        What sleeps in the driver cannot be killed, and is waited for no longer than REST_ENDS_WITHIN_S.
        """
        deadline = clock.monotonic_s() + REST_ENDS_WITHIN_S
        while clock.monotonic_s() < deadline:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            for child in _children():
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(child, signal.SIGKILL)
            self._reaped()
            try:
                os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            signal.sigtimedwait({signal.SIGCHLD}, 0.1)

    def _become(
        self, arguments: Sequence[str], environment: Mapping[str, str], gate: int, ends: Mapping[int, int]
    ) -> NoReturn:
        """In the child: never returns, and never raises into the code of its parent."""
        try:
            with contextlib.suppress(OSError):
                os.setpgid(0, 0)
            _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # without its wrapper nobody would know of it, and it holds GPUs
            if os.read(gate, 1) != b"g":
                os._exit(NOT_EXECUTABLE)  # the wrapper is gone: nobody would know of this rank
            for number, end in ends.items():
                os.dup2(end, number)
            for number in _DEFAULT_IN_COMMAND:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, self._before - set(FORWARDED) - {signal.SIGCHLD})
            os.execvpe(arguments[0], list(arguments), environment)
        except OSError as error:
            sys.stderr.write(f"gpu-recovery-run: {arguments[0]}: {error.strerror}\n")
            sys.stderr.flush()
            os._exit(NOT_FOUND if error.errno in (errno.ENOENT, errno.ENOTDIR) else NOT_EXECUTABLE)
        finally:
            os._exit(NOT_EXECUTABLE)


def _prctl(option: int, value: int) -> None:
    """Where the C library or a sandbox has no such call, only what it would have given is lost."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def _to_the_foreground(group: int) -> None:
    """A command at a terminal reads from it, which only the foreground group may."""
    with contextlib.suppress(OSError):
        if os.isatty(0) and os.tcgetpgrp(0) == os.getpgrp():
            signal.signal(signal.SIGTTOU, signal.SIG_IGN)
            os.tcsetpgrp(0, group)


def _children() -> list[int]:
    try:
        text = Path("/proc/thread-self/children").read_text(encoding="ascii")
    except OSError:
        return []  # a kernel without the list: the group was killed, and what left it stays
    return [int(one) for one in text.split()]
