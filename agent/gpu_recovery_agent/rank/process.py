"""The command of a rank: its process group, its start, its end and its descendants.

The wrapper forks it instead of using `subprocess`, because its pid must be in a file before its first instruction. The
child waits at a gate, a pipe, until the file is written.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, Protocol

from .. import clock

FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""Signals that the wrapper forwards to the command."""
NOT_FOUND, NOT_EXECUTABLE = 127, 126
REST_ENDS_WITHIN_S = 5.0
"""Seconds that the wrapper waits for killed descendants of the command."""
POLL_S = 0.5
"""Seconds between two checks whether a signal is due."""
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
_DEFAULT_IN_COMMAND = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTTOU)  # ignored by Python, the third by the wrapper
_CHILDREN = Path("/proc/thread-self/children")
_spared: list[Callable[[], set[int]]] = []
"""Functions that return the processes that `end_the_rest` spares. Each belongs to one standby process."""
_commands: set[int] = set()
"""Commands that have not been reaped."""
_ended: dict[int, Ended] = {}
"""How commands ended that were reaped. One command may reap another, because orphans are reaped by any number."""


@dataclass(frozen=True)
class Ended:
    """How the command ended: `code` or `signal`."""

    code: int | None = None
    signal: int | None = None

    @property
    def status(self) -> int:
        """Return the exit status as a shell reports it."""
        return self.code if self.code is not None else 128 + (self.signal or 0)


class SignalPolicy(Protocol):
    """Decides which signal the command's group gets; 0 means no signal."""

    def on_signal(self, number: int) -> int:
        """Return the signal to send after this process received `number`, a signal of FORWARDED."""

    def due(self) -> int:
        """Return the signal that is due now. It is called every POLL_S at least."""


class Command:
    """One command, held at its gate until `go`. The signals of FORWARDED and SIGCHLD stay blocked in this process.

    Args:
        arguments: the command line.
        environment: the environment of the command.
        ends: descriptors of this process that replace descriptors of the command, by their number there.
    """

    def __init__(
        self, arguments: Sequence[str], environment: Mapping[str, str], ends: Mapping[int, int] | None = None
    ) -> None:
        self._before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, *FORWARDED})
        _prctl(PR_SET_CHILD_SUBREAPER, 1)  # orphans become children of the wrapper, also if its pid is not 1
        waits, self._gate = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._gate)
            self._become(arguments, environment, waits, ends or {})
        os.close(waits)
        _ended.pop(self.pid, None)
        _commands.add(self.pid)
        with contextlib.suppress(OSError):  # the child calls it too, and either may be first
            os.setpgid(self.pid, self.pid)

    def go(self, in_foreground: bool = True) -> None:
        """Open the gate. At a terminal, the command gets the input unless `in_foreground` is false."""
        if in_foreground:
            self.to_the_foreground()
        with contextlib.suppress(BrokenPipeError):  # the child was killed before; `wait` returns how it ended
            os.write(self._gate, b"g")
        os.close(self._gate)

    def to_the_foreground(self) -> None:
        """Give the input of a terminal to the command: only the foreground group may read from it."""
        with contextlib.suppress(OSError):
            if os.isatty(0) and os.tcgetpgrp(0) == os.getpgrp():
                signal.signal(signal.SIGTTOU, signal.SIG_IGN)
                os.tcsetpgrp(0, self.pid)

    def wait(self, policy: SignalPolicy, poll_s: Callable[[], float]) -> Ended:
        """Signal the command's group as `policy` decides and reap orphans until the command has ended.

        Args:
            policy: decides the signals.
            poll_s: returns the seconds until the next check whether a signal is due.
        """
        while True:
            if (ended := self._reaped()) is not None:
                return ended
            received = signal.sigtimedwait({signal.SIGCHLD, *FORWARDED}, poll_s())
            if received is not None and received.si_signo != signal.SIGCHLD:
                self._signal(policy.on_signal(received.si_signo))
            self._signal(policy.due())

    def _signal(self, number: int) -> None:
        if number:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def ended(self) -> Ended | None:
        """Return how the command ended; None while it runs."""
        return self._reaped()

    def _reaped(self) -> Ended | None:
        """Reap all children that have ended."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            if pid in _commands:
                _commands.discard(pid)
                code = os.waitstatus_to_exitcode(status)
                _ended[pid] = Ended(code=code) if code >= 0 else Ended(signal=-code)
        return _ended.get(self.pid)

    def end_the_rest(self, within_s: float = REST_ENDS_WITHIN_S) -> None:
        """Kill all processes that the command left behind, as the end of a container does: they may hold GPUs.

        Only the processes that `spare` was told of stay. A process that sleeps in the driver cannot be killed. The
        wrapper waits for it no longer than `within_s`.
        """
        deadline = clock.monotonic_s() + within_s
        while clock.monotonic_s() < deadline:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            stays = set[int]().union(*(found() for found in _spared))
            for child in children():
                if child not in stays:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(child, signal.SIGKILL)
            self._reaped()
            if not _has_children(stays):
                return
            signal.sigtimedwait({signal.SIGCHLD}, 0.1)

    def _become(
        self, arguments: Sequence[str], environment: Mapping[str, str], gate: int, ends: Mapping[int, int]
    ) -> NoReturn:
        """Run in the child: wait at the gate and execute the command.

        Never returns, and never raises into the parent's code.
        """
        try:
            with contextlib.suppress(OSError):
                os.setpgid(0, 0)
            # Without the wrapper the agent would not know of the command, which holds GPUs.
            _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.read(gate, 1) != b"g":
                os._exit(NOT_EXECUTABLE)  # the wrapper is gone: the agent would not know of this rank
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
    """Call prctl(2). Without the call, only the requested property is lost."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def spare(found: Callable[[], set[int]]) -> Callable[[], None]:
    """Let `end_the_rest` of each command spare the processes that `found` returns.

    Return a function that ends this; it may be called again.
    """
    _spared.append(found)

    def no_more() -> None:
        with contextlib.suppress(ValueError):
            _spared.remove(found)

    return no_more


def can_spare() -> bool:
    """Return whether this kernel lists the children of a process. Without the list none can be told from another."""
    return _CHILDREN.exists()


def children() -> list[int]:
    """Return the children of this thread; none if this kernel has no list of them: then only groups can be killed."""
    try:
        text = _CHILDREN.read_text(encoding="ascii")
    except OSError:
        return []
    return [int(pid) for pid in text.split()]


def _has_children(besides: set[int]) -> bool:
    """Return whether this process has children besides these."""
    if besides:
        return not set(children()) <= besides
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True
