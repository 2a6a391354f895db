"""Storage of console snapshots, and the writer that the reconciler and the scheduler use at the end of their work.

The recovery of jobs does not depend on the console. So a failed write is reported and never raised.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from gpu_recovery.core.console_snapshots import SnapshotName

REFRESH = timedelta(seconds=50)
"""Age from which an unchanged snapshot is written again, so that readers see that its writer works.

It is less than the minute between two reconcile cycles, so that a cycle which is a little faster than the last also
writes.
"""
MEMBERS_REFRESH = timedelta(days=1)
"""The same for the members of the fleet, so that their entity tag changes with the membership alone. Snapshots expire
after 7 days."""
BEGIN_WITHIN = timedelta(milliseconds=500)
"""Time in which a run begins to write snapshots. With the timeouts of the store a run takes 2 s for them at most."""


class ConsoleSnapshots(Protocol):
    """Named JSON documents, each replaced as a whole."""

    def save(self, name: SnapshotName, text: str) -> None:
        """Save the document under the name. The call ends within 1.5 s.

        Args:
            name: name of the snapshot.
            text: the document as JSON.

        Raises:
            Unavailable: the storage did not answer.
            StorageFailed: the storage refused the document.
        """

    def load(self, name: SnapshotName) -> Mapping[str, Any] | None:
        """Return the document that was saved last under the name; None if there is none.

        Raises:
            Unavailable: the storage did not answer.
            StorageFailed: the storage refused the read, or the document is malformed.
        """


class SnapshotWriter:
    """Writes snapshots whose content has changed or whose last write is old. It lives as long as its function is warm.

    Args:
        snapshots: the storage.
        clock: returns the present time.
        failed: receives each failure.
    """

    def __init__(
        self,
        snapshots: ConsoleSnapshots,
        clock: Callable[[], datetime],
        failed: Callable[[SnapshotName, Exception], object],
    ) -> None:
        self._snapshots, self._clock, self._failed = snapshots, clock, failed
        self._written: dict[SnapshotName, tuple[str, datetime]] = {}
        self._tried: dict[SnapshotName, datetime] = {}

    def write(
        self, documents: Mapping[SnapshotName, Callable[[], Mapping[str, Any]]], as_of: datetime | None = None
    ) -> frozenset[SnapshotName]:
        """Write the documents, each with `as_of`, the time of its content. Never raise.

        The snapshot that was written longest ago comes first. If the storage is slow, the others follow in later runs.

        Args:
            documents: a function that builds the document, by name. Its failure is reported as that of a write.
            as_of: the time of the content; None: the present time.

        Returns:
            The names of the snapshots that failed.
        """
        began = self._clock()
        failed = set[SnapshotName]()
        for name in sorted(documents, key=self._last_write):
            try:
                now = self._clock()
                if now - began > BEGIN_WITHIN:
                    raise TimeoutError(f"the other snapshots took {(now - began).total_seconds():.1f} s")
                self._tried[name] = now
                self._write(name, documents[name](), began, as_of or began)
            except Exception as failure:  # noqa: BLE001 - the console must not disturb the function that writes
                self._failed(name, failure)
                failed.add(name)
        return frozenset(failed)

    def is_old(self, name: SnapshotName, age: timedelta) -> bool:
        """Return whether this process has not tried to write the snapshot within `age`."""
        tried = self._tried.get(name)
        return tried is None or self._clock() - tried >= age

    def _last_write(self, name: SnapshotName) -> float:
        written = self._written.get(name)
        return written[1].timestamp() if written is not None else 0.0

    def _write(self, name: SnapshotName, document: Mapping[str, Any], now: datetime, at: datetime) -> None:
        text = json.dumps(document, sort_keys=True, separators=(",", ":"))
        digest = hashlib.sha256(text.encode()).hexdigest()
        refresh = MEMBERS_REFRESH if name is SnapshotName.MEMBERS else REFRESH
        last = self._written.get(name)
        if last is not None and last[0] == digest and now - last[1] < refresh:
            return
        as_of = f'{{"as_of":"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"'
        self._snapshots.save(name, f"{as_of},{text[1:]}" if document else f"{as_of}}}")
        self._written[name] = (digest, now)
