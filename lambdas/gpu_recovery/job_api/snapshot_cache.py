"""Caches of what the polled routes answer with: console snapshots, and the numbers of dead letters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from gpu_recovery.core.console_snapshots import SnapshotName
from gpu_recovery.job_api.redrive import DeadLetterQueue, DeadLetters
from gpu_recovery.ports.console_snapshots import ConsoleSnapshots
from gpu_recovery.ports.errors import Unavailable

SNAPSHOT_TTL = timedelta(seconds=5)
"""Time for which a snapshot answers further requests. Its writers write once a minute."""
FAILURE_TTL = timedelta(seconds=5)
"""Time for which a failed read answers further requests. Each of them would wait for the timeout of the storage."""
KEPT_FOR = timedelta(seconds=60)
"""Time for which a value that is due to be read again still answers while storage does not."""
DEAD_LETTER_TTL = timedelta(seconds=60)
"""The same for the numbers of dead letters, which take a call of SQS for each queue."""
WEEK_TTL = timedelta(seconds=60)
"""The same for the figures of the last days, whose items hold up to 400 KB each."""
Value = TypeVar("Value")


class TimedCache(Generic[Value]):
    """Values by key, each read again when it is older than `ttl`.

    A failed read is not tried again for `FAILURE_TTL`. Meanwhile the last value answers, for `KEPT_FOR`.
    """

    def __init__(self, ttl: timedelta) -> None:
        self._ttl = ttl
        self._values: dict[str, tuple[Value, datetime]] = {}
        self._failures: dict[str, tuple[Unavailable, datetime]] = {}

    def get(self, key: str, now: datetime, read: Callable[[], Value]) -> Value:
        """Return the value of the key: the kept value if it is young enough, else the value that `read` returns.

        Raises:
            Unavailable: `read` raised it, now or a few seconds ago, and no value of the last minute is kept.
            StorageFailed: `read` raised it.
        """
        kept, failed = self._values.get(key), self._failures.get(key)
        if kept is not None and now - kept[1] < self._ttl:
            return kept[0]
        last = kept[0] if kept is not None and now - kept[1] < self._ttl + KEPT_FOR else None
        if failed is not None and now - failed[1] < FAILURE_TTL:
            if last is None:
                raise Unavailable(str(failed[0])) from failed[0]
            return last
        try:
            value = read()
        except Unavailable as error:
            self._failures[key] = (error.with_traceback(None), now)
            if last is None:
                raise
            return last
        self._values[key] = (value, now)
        return value


class SnapshotCache:
    """Console snapshots of the storage `snapshots`, each read at most every five seconds. None has no storage."""

    def __init__(self, snapshots: ConsoleSnapshots | None = None) -> None:
        self._snapshots = snapshots
        self._cache = TimedCache[Mapping[str, Any]](SNAPSHOT_TTL)

    def load(self, name: SnapshotName, now: datetime) -> Mapping[str, Any]:
        """Return the snapshot; empty if it was never written. Its `as_of` is the time of its content.

        Raises:
            Unavailable: the storage did not answer, now or a few seconds ago.
            StorageFailed: the storage refused the read.
        """
        snapshots = self._snapshots
        return self._cache.get(name, now, lambda: (snapshots.load(name) if snapshots is not None else None) or {})


class DeadLetterCounts:
    """The approximate depth of each dead-letter queue, read at most once a minute."""

    def __init__(self) -> None:
        self._cache = TimedCache[dict[str, int]](DEAD_LETTER_TTL)

    def read(self, dead_letters: Callable[[], DeadLetters], now: datetime) -> dict[str, int]:
        """Return the depths by the name of the queue.

        Raises:
            Unavailable: SQS did not answer, now or a few seconds ago.
            StorageFailed: SQS refused the call.
        """

        def depths() -> dict[str, int]:
            queues = dead_letters()
            return {queue.value: queues.depth(queue) for queue in DeadLetterQueue}

        return self._cache.get("", now, depths)
