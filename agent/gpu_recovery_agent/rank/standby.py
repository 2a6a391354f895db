"""The standby process: a second copy of the command that waits with its imports done for the next attempt.

With GPU_RECOVERY_STANDBY=1, in a container whose rank can be held, the wrapper starts a second copy of the command. The
copy runs up to `training.wait_for_start()` and waits there. At the next restart in place the wrapper writes the
variables of the attempt into the suspension folder of the copy. The copy then goes on as the command of that attempt.

A program that never calls `wait_for_start()` would train twice. These rules prevent it, and two of the library:

- A standby process is started only after the running command has called `wait_for_start()` itself. The mark `waits` in
  its suspension folder says so. With GPU_RECOVERY_STANDBY=spares a warm spare needs no mark, because no command runs.
- The variables that name a rank are missing in a standby process until it is started.
- A standby process that asks for the notice, or reports progress, before it waits is ended.

A standby process that ends, or does not wait in time, is discarded. Then the next attempt starts in the ordinary way.
There is at most one standby process for each attempt.

The kernel ends a standby process first if the memory of the container is not enough (`oom_score_adj`). Its priority is
not lowered: without a capability Linux lets no process raise its priority again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from .. import clock
from .guard import end_processes, processes_of
from .hold import ENDS, VARIABLES, WARM_VARIABLE
from .process import SignalPolicy, can_spare, spare
from .rank_process import RankProcess
from .settings import STANDBY_VARIABLE
from .suspension_folder import ASKED, PROGRESS, SUSPEND, WAITS, WATCHDOG, SuspensionFolder

WAITING = "waits"
"""Value of STANDBY_VARIABLE in a standby process. The library waits for the start only with this value."""
WAITS_WITHIN_S = 900.0
"""Seconds from the start of a standby process within which it must wait. Imports on large images take 10 to 60 s."""
TRAINS = (ASKED, PROGRESS, WATCHDOG, SUSPEND)
"""Marks of a program that trains."""
PROC = Path("/proc")
OOM_FIRST = "1000"
"""Value of `oom_score_adj` of a process that the kernel ends before all others."""


class Standby:
    """The standby process of a container, from its start until it is taken as a command or discarded.

    Args:
        arguments: the command line.
        after_s: seconds from the mark of the running command to the start of the standby process.
        say: writes one line to the log of the rank.
        now: monotonic time in seconds.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        after_s: float,
        say: Callable[[str], None],
        now: Callable[[], float] = clock.monotonic_s,
    ) -> None:
        self._arguments, self._after_s, self._say, self._now = arguments, after_s, say, now
        self._process: RankProcess | None = None
        self._spare_no_more: Callable[[], None] = lambda: None
        self._oom_before = ""
        self._is_waiting = self._is_used_up = False
        self._due_at: float | None = None
        self._waits_by = 0.0

    def end_attempt(self) -> None:
        """Start no standby process any more until the next attempt. The present one stays."""
        self._is_used_up = True

    def look(self, folder: SuspensionFolder | None, environment: Mapping[str, str]) -> None:
        """Start the standby process if it is due, and discard it if it does not behave. Call it several times a second.

        Args:
            folder: the suspension folder of the running command.
            environment: the environment of the running attempt.
        """
        if self._process is not None:
            self.check()
        elif not self._is_used_up and folder is not None and folder.has(WAITS):
            if self._due_at is None:
                self._due_at = self._now() + self._after_s
            elif self._now() >= self._due_at:
                self.start(environment)

    def start(self, environment: Mapping[str, str]) -> None:
        """Start the standby process for the container of a rank with this environment."""
        self._is_used_up = True
        if not can_spare():
            self._say("warning: this kernel does not list the children of a process: there is no standby process")
            return
        left_out = (*VARIABLES, WARM_VARIABLE)
        kept = {name: value for name, value in environment.items() if name not in left_out}
        try:
            process = RankProcess(self._arguments, {**kept, STANDBY_VARIABLE: WAITING}, self._say)
        except OSError as error:  # the limit of processes or descriptors is reached: the training goes on without it
            self._say(f"warning: no standby process can be started: {error.strerror}")
            return
        self._process, self._is_waiting, self._waits_by = process, False, self._now() + WAITS_WITHIN_S
        self._spare_no_more = spare(lambda: _processes(process))
        self._oom_before = _exchange_oom_score(process.command.pid, OOM_FIRST)
        if process.folder is None:  # without the variable of the folder it would not wait
            self._discard("it has no folder")
            return
        process.command.go(in_foreground=False)

    def check(self) -> None:
        """Discard the standby process if it has ended, trains, or does not wait in time."""
        process = self._process
        if process is None or process.folder is None:
            return
        if (ended := process.command.ended()) is not None:
            self._discard(f"it has ended with {ended.status}")
        elif any(process.folder.has(mark) for mark in TRAINS):
            self._discard("it trains before it has called wait_for_start")
        elif not self._is_waiting and process.folder.has(WAITS):
            self._is_waiting = True
            self._say(f"a standby process waits for the next attempt: process {process.command.pid}")
        elif not self._is_waiting and self._now() >= self._waits_by:
            self._discard(f"it has not called wait_for_start within {WAITS_WITHIN_S:.0f} s")

    def take(self, environment: Mapping[str, str]) -> RankProcess | None:
        """Return the standby process, prepared for an attempt with this environment; None if there is none that waits.

        A standby process that does not wait yet is discarded. The attempt that begins may have a new one.
        """
        self.check()
        self._is_used_up, self._due_at = False, None
        process = self._process
        if process is None:
            return None
        if not self._is_waiting:
            self._discard("it does not wait yet")
            return None
        try:
            process.prepare(environment)
        except OSError as error:
            self._discard(f"its start cannot be written: {error.strerror}")
            return None
        self._process = None
        self._spare_no_more()
        for pid in processes_of(process.command.pid, process.path):
            if not _exchange_oom_score(pid, self._oom_before) and pid == process.command.pid:
                self._say("warning: oom_score_adj cannot be set back: the kernel would end the training first")
        return process

    def end(self) -> None:
        """End the standby process, because its container ends or its rank leaves."""
        self._is_used_up = True
        if self._process is not None:
            self._end(self._process)

    def _discard(self, why: str) -> None:
        if self._process is not None:
            self._say(f"the standby process is discarded: {why}; the next attempt starts in the ordinary way")
            self._end(self._process)

    def _end(self, process: RankProcess) -> None:
        self._process = None
        self._spare_no_more()
        end_processes(process.command.pid, process.path)
        process.guard.dismiss()
        process.command.ended()
        process.output.end()
        process.close()


class StandbyPolicy:
    """A signal policy that watches the standby process and leaves every signal to `inner`.

    Args:
        inner: decides the signals.
        standby: the standby process of the container.
        folder: the suspension folder of the running command.
        environment: the environment of the running attempt.
    """

    def __init__(
        self,
        inner: SignalPolicy,
        standby: Standby,
        folder: SuspensionFolder | None,
        environment: Mapping[str, str],
    ) -> None:
        self._inner, self._standby, self._folder, self._environment = inner, standby, folder, environment
        self._is_ending = False

    def on_signal(self, number: int) -> int:
        """Return the signal for the command. After a signal that ends the container `due` ends the standby process."""
        self._is_ending = self._is_ending or number in ENDS
        return self._inner.on_signal(number)

    def due(self) -> int:
        """Return the signal that is due now. A command that is being ended gets no new standby process."""
        number = self._inner.due()
        if number:
            self._standby.end_attempt()
        if self._is_ending:
            self._standby.end()
        else:
            self._standby.look(self._folder, self._environment)
        return number


def _processes(process: RankProcess) -> set[int]:
    """Return the processes of a standby process, with its guard."""
    found = processes_of(process.command.pid, process.path)
    return found | ({process.guard.pid} if process.guard.pid is not None else set())


def _exchange_oom_score(pid: int, score: str) -> str:
    """Set `oom_score_adj` of a process and return its former value; "" if it cannot be set. "" sets nothing."""
    path = PROC / str(pid) / "oom_score_adj"
    with suppress(OSError):
        before = path.read_text(encoding="ascii").strip()
        if score:
            path.write_text(score, encoding="ascii")
        return before
    return ""
