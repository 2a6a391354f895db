"""Reports for diagnoses, and locks, in memory: that part of `ports.Store`, with the answers that DynamoDB gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gpu_recovery.core.diagnosis.observation_buffer import ReportsKept, added
from gpu_recovery.core.diagnosis.observations import Report
from gpu_recovery.core.gpu_lock import GpuLock
from gpu_recovery.ports.errors import StaleRecord


class MemoryReports:
    """See `ports.Store` for what each function promises."""

    def __init__(self) -> None:
        self.reported: dict[tuple[str, int, str], ReportsKept] = {}
        self.locks: dict[tuple[str, str], GpuLock] = {}

    def add_reports(
        self, job_id: str, attempt: int, instance_id: str, reports: Sequence[Report], lost: int = 0
    ) -> None:
        key = (job_id, attempt, instance_id)
        # To the millisecond, as a table keeps them.
        found = [replace(one, at_s=round(one.at_s, 3)) for one in reports]
        after = added(self.reported.get(key, ReportsKept()), found, lost)
        if after is not None:
            self.reported[key] = after

    def reports_of(self, job_id: str, attempt: int, instance_ids: Sequence[str]) -> Mapping[str, ReportsKept]:
        found = {one: self.reported.get((job_id, attempt, one)) for one in instance_ids}
        return {one: kept for one, kept in found.items() if kept is not None}

    def load_lock(self, job_id: str, name: str) -> GpuLock:
        return self.locks.get((job_id, name), GpuLock(job_id, name))

    def save_lock(self, lock: GpuLock) -> None:
        if self.load_lock(lock.job_id, lock.name).revision != lock.revision:
            raise StaleRecord(f"lock {lock.name} of job {lock.job_id} was written since revision {lock.revision}")
        self.locks[lock.job_id, lock.name] = replace(lock, revision=lock.revision + 1)
