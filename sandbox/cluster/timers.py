"""Timers: one thread that runs functions after a delay. The driver uses timers; the model has no clock."""

import heapq
import itertools
import threading
import time
from collections.abc import Callable


class Timers:
    """Queue of functions to call later, all from one daemon thread."""

    def __init__(self) -> None:
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="timers", daemon=True)
        self._thread.start()

    def after(self, delay_s: float, call: Callable[[], None]) -> None:
        """Call `call` after `delay_s` seconds, unless the timers are closed before."""
        with self._changed:
            heapq.heappush(self._due, (time.monotonic() + delay_s, next(self._order), call))
            self._changed.notify()

    def close(self) -> None:
        """Stop the thread. It does not make the calls that are still due."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        while (call := self._next()) is not None:
            call()

    def _next(self) -> Callable[[], None] | None:
        with self._changed:
            while not self._closed:
                wait_s = self._due[0][0] - time.monotonic() if self._due else None
                if wait_s is not None and wait_s <= 0:
                    return heapq.heappop(self._due)[2]
                self._changed.wait(wait_s)
        return None
