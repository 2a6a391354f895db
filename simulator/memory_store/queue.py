"""The queue in memory: `ports.store.QueueStore` with the results that DynamoDB gives.

Entries are built from the job records at each read, so they are never outdated. Terms of the scheduler, quota counts
and quota limits are fields.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from gpu_recovery.aws.queue_store import CHANGED_MAX, WAKE_OVERDUE
from gpu_recovery.core.job.queue_entry import entry_of, entry_on_ray
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.queue.entry import Entry, LastPass
from gpu_recovery.core.ray.placement import is_in_the_pool
from gpu_recovery.core.state_machine import QuotaChange
from gpu_recovery.ports.errors import StaleRecord, TermOver


class MemoryQueue:
    """Implements `ports.store.QueueStore`. `jobs`: the table of the job records."""

    jobs: Any

    def __init__(self) -> None:
        self.scheduler = LastPass()
        self.placements: dict[str, datetime] = {}
        self.changed: set[str] = set()
        self.sent_at = datetime.min.replace(tzinfo=UTC)
        self.used: dict[str, int] = {}
        self.run_times: dict[str, dict[int, int]] = {}
        self.limits: tuple[Mapping[str, Any], int] = ({}, 0)

    def load_queue(self, unreadable: list[Exception] | None = None) -> tuple[Entry, ...]:
        """Return the queue entries of all jobs that wait for instances or hold some."""
        entries = (entry_of(job) for job in self.jobs.records.values())
        return tuple(entry for entry in entries if entry is not None)

    def load_waiting(self, unreadable: list[Exception] | None = None) -> tuple[Entry, ...]:
        """Return the queue entries of all jobs that wait for instances."""
        return tuple(entry for entry in self.load_queue(unreadable) if entry.waits)

    def jobs_on_ray(self, unreadable: list[Exception] | None = None) -> tuple[Job, ...]:
        """Return every job on Ray that waits for GPUs or holds some."""
        return tuple(job for job in self.jobs.records.values() if is_in_the_pool(job))

    def load_ray_queue(self, unreadable: list[Exception] | None = None) -> tuple[Entry, ...]:
        """Return the queue entries of all jobs on Ray that wait for GPUs or hold some."""
        entries = (entry_on_ray(job) for job in self.jobs.records.values())
        return tuple(entry for entry in entries if entry is not None)

    def load_last_pass(self) -> LastPass:
        """Return the record of the scheduler's last pass."""
        return self.scheduler

    def add_changed_instance(self, instance_id: str, now: datetime) -> bool:
        """Add a changed instance. Return whether a message must wake the scheduler."""
        is_first = not self.changed
        if len(self.changed) < CHANGED_MAX:
            self.changed.add(instance_id)
        if is_first or self.sent_at <= now - WAKE_OVERDUE:
            self.sent_at = now
            return True
        return False

    def take_changed_instances(self) -> Collection[str]:
        """Return the changed instances and forget them."""
        names, self.changed = self.changed, set()
        return names

    def begin_term(self) -> int:
        """Begin a new term of the scheduler; return its number."""
        self.scheduler = replace(self.scheduler, term=self.scheduler.term + 1, at=None)
        return self.scheduler.term

    def recent_placements(self, term: int, since: datetime) -> Collection[str]:
        """Return the jobs whose placement was remembered at `since` or later, and forget the older placements."""
        recent = {job_id: at for job_id, at in self.placements.items() if at >= since}
        if term == self.scheduler.term:
            self.placements = recent
        return tuple(recent)

    def save_pass(self, ended: LastPass) -> None:
        """Save the pass that has ended, unless another term has begun since."""
        if ended.term == self.scheduler.term:
            self.scheduler = ended

    def quota_used(self, keys: Iterable[str]) -> Mapping[str, int]:
        """Return the number of instances in use by quota key."""
        return {key: self.used.get(key, 0) for key in keys}

    def load_run_times(self, kinds: Iterable[str]) -> Mapping[str, tuple[int, ...]]:
        """Return the run times of the latest jobs of each kind, in seconds."""
        return {kind: tuple(self.run_times.get(kind, {}).values()) for kind in kinds}

    def load_limits(self) -> tuple[Mapping[str, Any], int]:
        """Return the document of quota limits and its revision."""
        return self.limits

    def save_limits(self, document: Mapping[str, Any], revision: int) -> int:
        """Save the document of quota limits if its revision is still `revision`; return the new revision."""
        if revision != self.limits[1]:
            raise StaleRecord(f"the limits were written since revision {revision}")
        self.limits = (document, revision + 1)
        return revision + 1

    def check_term(self, quota: QuotaChange | None) -> None:
        """Refuse a decision of an earlier term of the scheduler.

        Raises:
            TermOver: Another term has begun since the decision.
        """
        if quota is not None and quota.term is not None and quota.term != self.scheduler.term:
            raise TermOver(f"the scheduler's term {quota.term} is over: another has begun")

    def remember_placement(self, job_id: str, quota: QuotaChange | None) -> None:
        """Remember the placement of a saved job, if its quota change says so."""
        if quota is not None and quota.placed_at is not None:
            self.placements[job_id] = quota.placed_at

    def count(self, quota: QuotaChange | None) -> None:
        """Add the quota change of a saved job to the counts and the run times."""
        if quota is not None and quota.nodes:
            self.used[quota.key] = self.used.get(quota.key, 0) + quota.nodes
        if quota is not None and quota.ran is not None:
            self.run_times.setdefault(quota.ran.kind, {})[quota.ran.slot] = quota.ran.seconds
