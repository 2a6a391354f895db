"""Launch holds: jobs whose launch AWS would deny wait, because the deployment lacks a permission.

A hold begins with a denied launch, and needs no record of its own: the jobs that were denied are in the queue. While
the last denied job pauses or is being launched again, no other job of the hold starts. Then one job of the hold may
start in each pass. The first launch that succeeds ends the hold.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from gpu_recovery.core.queue.entry import Entry
from gpu_recovery.core.queue.snapshot import LaunchHold, WaitingJob

EVERYWHERE = ""
"""Scope of a hold that affects every task definition."""


def launch_holds(entries: Iterable[Entry], now: datetime) -> tuple[LaunchHold, ...]:
    """Return the holds that the denied launches of these jobs cause."""
    denied = [entry for entry in entries if entry.denied_at is not None]
    scopes: dict[str, list[Entry]] = {}
    for entry in denied:
        if entry.lacks:
            scopes.setdefault(EVERYWHERE if entry.lacks_everywhere else entry.task_definition, []).append(entry)
    holds = []
    for scope, members in sorted(scopes.items()):
        proofs = [e.denied_at for e in denied if not e.lacks and scope in (EVERYWHERE, e.task_definition)]
        proved_at = max((at for at in proofs if at is not None), default=None)
        current = [e for e in members if proved_at is None or (e.denied_at is not None and e.denied_at > proved_at)]
        if current:
            is_closed = any(not entry.waits or _pauses(entry, now) for entry in current)
            latest = max(current, key=lambda entry: (entry.denied_at or now, entry.job_id))
            holds.append(LaunchHold(scope, latest.lacks, is_closed))
    return tuple(holds)


def _pauses(entry: Entry, now: datetime) -> bool:
    return not entry.held and entry.not_before is not None and entry.not_before > now


class LaunchHolds:
    """The launch holds of one pass. At most one job of each hold starts."""

    def __init__(self, holds: Iterable[LaunchHold]) -> None:
        self._holds = {hold.scope: hold for hold in holds}
        self._closed = {hold.scope for hold in self._holds.values() if hold.is_closed}

    def of(self, job: WaitingJob) -> LaunchHold | None:
        """Return the hold that the job belongs to, closed or not; None if there is none."""
        return self._holds.get(EVERYWHERE) or self._holds.get(job.task_definition)

    def closed(self, job: WaitingJob) -> LaunchHold | None:
        """Return the hold that keeps the job from starting; None if there is none."""
        return next((self._holds[scope] for scope in (EVERYWHERE, job.task_definition) if scope in self._closed), None)

    def begin_launch(self, job: WaitingJob) -> None:
        """Close the holds of the job, which starts in this pass."""
        self._closed |= {scope for scope in (EVERYWHERE, job.task_definition) if scope in self._holds}
