"""The line in memory: entries made of the records themselves, so that they are never old; terms, counts and limits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from gpu_recovery.core.job.queue_entry import entry_of
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.queue.entry import Entry, LastPass
from gpu_recovery.core.ray.placement import is_in_the_pool
from gpu_recovery.core.state_machine import QuotaChange
from gpu_recovery.ports.errors import StaleRecord, TermOver


class MemoryQueue:
    """See `ports.Store` for what each function promises. `jobs`: the shelf of their records."""

    jobs: Any

    def __init__(self) -> None:
        self.scheduler = LastPass()
        self.used: dict[str, int] = {}
        self.run_times: dict[str, dict[int, int]] = {}
        self.limits: tuple[Mapping[str, Any], int] = ({}, 0)

    def load_queue(self, unreadable: list[Exception] | None = None) -> tuple[Entry, ...]:
        entries = (entry_of(job) for job in self.jobs.records.values())
        return tuple(entry for entry in entries if entry is not None)

    def jobs_on_ray(self, unreadable: list[Exception] | None = None) -> tuple[Job, ...]:
        return tuple(job for job in self.jobs.records.values() if is_in_the_pool(job))

    def load_last_pass(self) -> LastPass:
        return self.scheduler

    def begin_term(self) -> int:
        self.scheduler = replace(self.scheduler, term=self.scheduler.term + 1, at=None)
        return self.scheduler.term

    def save_pass(self, ended: LastPass) -> None:
        if ended.term == self.scheduler.term:
            self.scheduler = ended

    def quota_used(self, keys: Iterable[str]) -> Mapping[str, int]:
        return {key: self.used.get(key, 0) for key in keys}

    def load_run_times(self, kinds: Iterable[str]) -> Mapping[str, tuple[int, ...]]:
        return {kind: tuple(self.run_times.get(kind, {}).values()) for kind in kinds}

    def load_limits(self) -> tuple[Mapping[str, Any], int]:
        return self.limits

    def save_limits(self, document: Mapping[str, Any], revision: int) -> int:
        if revision != self.limits[1]:
            raise StaleRecord(f"the limits were written since revision {revision}")
        self.limits = (document, revision + 1)
        return revision + 1

    def check_term(self, quota: QuotaChange | None) -> None:
        """Raise TermOver for what was decided in a term that is over."""
        if quota is not None and quota.term is not None and quota.term != self.scheduler.term:
            raise TermOver(f"the scheduler's term {quota.term} is over: another has begun")

    def count(self, quota: QuotaChange | None) -> None:
        """Enter what a job that was kept has changed."""
        if quota is not None and quota.nodes:
            self.used[quota.key] = self.used.get(quota.key, 0) + quota.nodes
        if quota is not None and quota.ran is not None:
            self.run_times.setdefault(quota.ran.kind, {})[quota.ran.slot] = quota.ran.seconds
