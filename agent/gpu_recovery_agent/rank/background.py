"""Work in the background of the wrapper: access to a shared file system may hang, and signals must not wait for it."""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Callable
from threading import Condition, Thread


class Background:
    """Runs pieces of work in order in one daemon thread, which lives while there is work.

    A piece of work that hangs stops all later pieces. The thread gets no signals: the wrapper waits for them itself.
    """

    def __init__(self) -> None:
        self._changed = Condition()
        self._waiting: deque[Callable[[], None]] = deque()
        self._runs = False

    @property
    def is_idle(self) -> bool:
        """Whether all work has ended. Never waits for work."""
        return not self._runs

    def begin(self, work: Callable[[], None]) -> None:
        """Run `work` once the earlier work has ended. Without a thread for it, the work is dropped."""
        with self._changed:
            self._waiting.append(work)
            if self._runs:
                return
            self._runs = True
        try:
            Thread(target=self._run, daemon=True).start()
        except RuntimeError:  # the limit of threads is reached
            self._stopped()

    def wait(self, within_s: float) -> bool:
        """Wait until all work has ended, at most `within_s` seconds. Return whether it has."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._runs, within_s)

    def _run(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            while (work := self._next()) is not None:
                work()
        except BaseException:
            self._stopped()
            raise

    def _next(self) -> Callable[[], None] | None:
        with self._changed:
            if self._waiting:
                return self._waiting.popleft()
            self._runs = False
            self._changed.notify_all()
            return None

    def _stopped(self) -> None:
        with self._changed:
            self._waiting.clear()
            self._runs = False
            self._changed.notify_all()
