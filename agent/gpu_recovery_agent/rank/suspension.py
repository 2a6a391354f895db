"""When a rank is ended: after SIGTERM (suspension notice), after `go_suspend`, or without progress.

This module only decides which signal the command's group gets next; `process` sends it. SIGTERM to rank 0 is a notice:
the command has its grace to save and to leave. Then it gets SIGTERM, and after a rest SIGKILL. The other ranks of a
gang get SIGTERM last, after rank 0 has left. So their wrapper forwards SIGTERM at once. A second SIGTERM is forwarded
at once on every rank.
"""

from __future__ import annotations

import signal
from collections.abc import Callable

from .. import clock
from .process import Ended
from .settings import MARGIN_S, REST_S, RankTimeouts
from .suspension_folder import ASKED, SUSPEND, SuspensionFolder

SUSPENDED, TIMED_OUT = 75, 124
"""Exit statuses: EX_TEMPFAIL, "try again later", and the status of `timeout`."""
STARTUP_S = 30.0
"""Seconds that a rehearsal waits longer for a command that has not asked for the notice yet: it may still be
starting.
"""
NOTHING = 0
"""No signal."""


class SuspensionHandler:
    """Decides the signals of one run of a command. `on_signal` and `due` return the signal for its group, or NOTHING.

    Args:
        limits: the time limits.
        folder: the suspension folder; None if it could not be made.
        leads: whether this is rank 0, which gets a notice; the other ranks get none.
        say: writes one line to the log of the rank.
        rehearse_s: for a rehearsal: seconds from the first time that the command asked for the notice until the
            notice.
        now: monotonic time in seconds.
    """

    def __init__(
        self,
        limits: RankTimeouts,
        folder: SuspensionFolder | None,
        *,
        leads: bool,
        say: Callable[[str], None],
        rehearse_s: float | None = None,
        now: Callable[[], float] = clock.monotonic_s,
    ) -> None:
        self._limits, self._folder, self._leads, self._log, self._now = limits, folder, leads, say, now
        self._rehearse_s, self._began_at = rehearse_s, now()
        self._asked_at: float | None = None
        self._term_at: float | None = None
        self._kill_at: float | None = None
        self._noticed_at: float | None = None
        self._ending = False
        self._progress: tuple[object, ...] = ()
        self._progress_at, self._watchdog_s = self._began_at, 0.0
        self.noticed = self.suspended = self.timed_out = self.forced = False

    def on_signal(self, number: int) -> int:
        """Return the signal for the command after the wrapper received `number`."""
        if number != signal.SIGTERM:
            return number
        first, self.noticed = not self.noticed, True
        if first:
            self._noticed_at = self._now()
        if self._limits.forwards:
            return number
        if self._kill_at is None:
            self._kill_at = self._now() + self._limits.kill_s
        if first and not self._ending and self._give_notice():
            self._term_at = self._now() + self._limits.term_s
            return NOTHING
        return self._term()

    def due(self) -> int:
        """Check the folder and the clock, and return the signal that is due. Call several times a second."""
        now, marked = self._now(), self._marked(SUSPEND)
        if marked and not self.suspended:
            self.suspended = True
            if not self._ending:
                self._log("the command is ready to be suspended")
                return self._end_within_rest()
        if self._kill_at is not None and now >= self._kill_at:
            self._kill_at = now + REST_S  # repeat it: the command may have started a process meanwhile
            self._log("the command does not exit: SIGKILL")
            self.forced = True
            return signal.SIGKILL
        if self._term_at is not None and now >= self._term_at:
            self._log("the grace period is over: SIGTERM")
            self.forced = True
            return self._term()
        if not self._ending and not self.noticed:
            if self._is_stuck(now):
                self.timed_out = True
                self._log(f"no progress for {self._watchdog_s:g} s: the command is ended")
                return self._end_within_rest()
            if self._is_rehearsed(now):
                return self.on_signal(signal.SIGTERM)
        return NOTHING

    def status(self, ended: Ended) -> int:
        """Return the exit status of the wrapper. Call it after the command has ended: its last mark may be new."""
        self.suspended = self.suspended or self._marked(SUSPEND)
        if self.timed_out:
            return TIMED_OUT
        return SUSPENDED if self.suspended else ended.status

    @property
    def left_s(self) -> float:
        """Seconds that the wrapper may still take before the container is killed, even if SIGTERM comes only now."""
        since_s = 0.0 if self._noticed_at is None else self._now() - self._noticed_at
        return max(self._limits.stop_timeout_s - MARGIN_S - since_s, 0.0)

    def facts(self) -> dict[str, bool]:
        """Return what the exit file says besides the command's own code; only the entries that are true."""
        marks = {"notice": self.noticed, "suspended": self.suspended, "timed_out": self.timed_out}
        return {name: True for name, is_true in marks.items() if is_true}

    def _give_notice(self) -> bool:
        """Give the notice to the command. Return whether the command has time to leave."""
        if not self._leads or self._folder is None or self._limits.term_s == 0:
            return False
        try:
            self._folder.give(self._limits.term_s)
        except OSError as error:
            self._log(f"warning: the notice cannot be given, and the command gets SIGTERM instead: {error}")
            return False
        asked = "" if self._marked(ASKED) else "; no process of it has asked for a notice so far"
        self._log(f"the command is to be suspended, and has {self._limits.term_s:g} s to exit{asked}")
        return True

    def _term(self) -> int:
        self._ending, self._term_at = True, None
        return signal.SIGTERM

    def _end_within_rest(self) -> int:
        until = self._now() + REST_S
        self._kill_at = until if self._kill_at is None else min(self._kill_at, until)
        return self._term()

    def _marked(self, name: str) -> bool:
        return self._folder is not None and self._folder.has(name)

    def _is_stuck(self, now: float) -> bool:
        if self._folder is None:
            return False
        progress = self._folder.progress()
        if progress != self._progress:
            self._progress, self._progress_at = progress, now
            try:
                self._watchdog_s = self._folder.watchdog_s() or 0.0
            except (OSError, ValueError) as error:
                self._log(f"warning: the watchdog's time cannot be read: {error}")
                self._watchdog_s = 0.0
        return self._watchdog_s > 0 and now - self._progress_at >= self._watchdog_s

    def _is_rehearsed(self, now: float) -> bool:
        if self._rehearse_s is None:
            return False
        if self._asked_at is None and self._marked(ASKED):
            self._asked_at = now
        begin = self._began_at + STARTUP_S if self._asked_at is None else self._asked_at
        return now >= begin + self._rehearse_s
