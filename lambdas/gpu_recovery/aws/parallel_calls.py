"""Threads and rate of the calls to AWS that one process makes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import Lock, Semaphore, Thread
from time import monotonic, sleep
from typing import Any

PARALLEL = 32
"""Upper bound of the calls to AWS that a process makes at a time, and of the connections of each client.

At 80 ms for a call, 32 calls at a time are 400 in a second.
"""
ECS_BURST = 100
"""Changing calls of ECS that AWS accepts at once: ECS API Reference, "Request throttling for the Amazon ECS API"."""


class WorkerThreads:
    """Threads for independent pieces of work. The caller's thread works as well.

    Work within work shares the threads: if no thread is free, the caller does all pieces itself, and takes threads as
    they become free. So nested work neither exceeds the upper bound nor waits for itself.

    Args:
        most: Upper bound of the threads that work at a time, the caller's thread included.
    """

    def __init__(self, most: int) -> None:
        self._free = Semaphore(most - 1)

    def each(self, work: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        """Call `work` for each item, in parallel. Return the results in the order of the items.

        Every item is processed even if others fail. Then the first failure, in the order of the items, is raised.
        """
        return _Share(self._free, work, list(items)).results()


class _Share:
    """One call of `WorkerThreads.each`."""

    def __init__(self, free: Semaphore, work: Callable[[Any], Any], items: list[Any]) -> None:
        self._free, self._work, self._items = free, work, items
        self._results: list[Any] = [None] * len(items)
        self._failures: dict[int, Exception] = {}
        self._helpers: list[Thread] = []
        self._begun, self._lock = 0, Lock()

    def results(self) -> list[Any]:
        """Do the work, and return its results or raise the first failure."""
        self._work_on()
        while self._helpers:  # a helper adds further helpers before it ends
            self._helpers.pop().join()
        if self._failures:
            raise self._failures[min(self._failures)]
        return self._results

    def _work_on(self) -> None:
        while (number := self._next()) is not None:
            self._take_on_helper()
            try:
                self._results[number] = self._work(self._items[number])
            except Exception as failure:  # noqa: BLE001 - `results` raises it
                self._failures[number] = failure

    def _next(self) -> int | None:
        with self._lock:
            number, self._begun = self._begun, self._begun + 1
        return number if number < len(self._items) else None

    def _take_on_helper(self) -> None:
        if self._begun >= len(self._items) or not self._free.acquire(blocking=False):
            return
        helper = Thread(target=self._help, daemon=True)
        try:
            helper.start()
        except RuntimeError:  # the system gives no more threads
            self._free.release()
        else:
            self._helpers.append(helper)

    def _help(self) -> None:
        try:
            self._work_on()
        finally:
            self._free.release()


in_parallel = WorkerThreads(PARALLEL).each
"""Call a function for each item, up to PARALLEL at a time in the process; see `WorkerThreads.each`."""


class ParallelCalls:
    """Base of the wrapper of a client that makes calls in parallel."""

    def each(self, work: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        """Call `work` for each item, in parallel. Return the results in the order of the items."""
        return in_parallel(work, items)


class CallRate:
    """Token bucket: delays calls that AWS would throttle.

    AWS has a bucket for the whole account. This bucket counts the calls of one process, so AWS may still throttle a
    call while other processes make calls.

    Args:
        burst: Calls that are made at once.
        per_s: Calls per second after the burst.
        clock: Returns a time in seconds.
        wait: Waits for a number of seconds.
    """

    def __init__(
        self,
        burst: int,
        per_s: float,
        clock: Callable[[], float] = monotonic,
        wait: Callable[[float], object] = sleep,
    ) -> None:
        self._burst_s, self._call_s, self._clock, self._wait = burst / per_s, 1 / per_s, clock, wait
        self._full_at, self._lock = float("-inf"), Lock()

    def take(self) -> None:
        """Wait until the rate allows another call."""
        with self._lock:
            now = self._clock()
            self._full_at = max(self._full_at, now) + self._call_s
            wait_s = self._full_at - self._burst_s - now
        if wait_s > 0:
            self._wait(wait_s)

    def exhausted(self) -> None:
        """Record that AWS throttled a call: the bucket of the account is empty."""
        with self._lock:
            self._full_at = max(self._full_at, self._clock() + self._burst_s)
