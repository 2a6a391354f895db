"""Observations and GPU locks in memory: two parts of `ports.store.Store` with the results that DynamoDB gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime

from gpu_recovery.aws.clients import as_unavailable
from gpu_recovery.core.diagnosis.observation_buffer import ObservationBuffer, added
from gpu_recovery.core.diagnosis.observations import Observation
from gpu_recovery.core.gpu_lock import LOCKS_MAX, GpuLockRecord, TooManyLocks
from gpu_recovery.ports.errors import StaleRecord


class MemoryObservations:
    """Implements `ports.store.ObservationStore` and `GpuLockStore`."""

    def __init__(self) -> None:
        self.reported: dict[tuple[str, int, str], ObservationBuffer] = {}
        self.locks: dict[tuple[str, str], GpuLockRecord] = {}

    def add_observations(
        self, job_id: str, attempt: int, instance_id: str, reports: Sequence[Observation], lost: int = 0
    ) -> None:
        """Add observations of the attempt's processes on one instance."""
        key = (job_id, attempt, instance_id)
        # Times have millisecond precision, as in the table.
        rounded = [replace(report, at_s=round(report.at_s, 3)) for report in reports]
        buffer = added(self.reported.get(key, ObservationBuffer()), rounded, lost)
        if buffer is not None:
            self.reported[key] = buffer

    def observations_of(
        self, job_id: str, attempt: int, instance_ids: Sequence[str]
    ) -> Mapping[str, ObservationBuffer]:
        """Return the stored observations by instance id."""
        buffers = {instance_id: self.reported.get((job_id, attempt, instance_id)) for instance_id in instance_ids}
        return {instance_id: buffer for instance_id, buffer in buffers.items() if buffer is not None}

    def reading_for_figures(self) -> AbstractContextManager[None]:
        """Raise Unavailable for each read inside that fails, as the store in DynamoDB does."""
        return as_unavailable("the job table")

    def load_lock(self, job_id: str, name: str) -> GpuLockRecord:
        """Return the lock of the job; a blank lock if none is stored."""
        return self.locks.get((job_id, name), GpuLockRecord(job_id, name))

    def save_lock(self, lock: GpuLockRecord, now: datetime) -> None:
        """Save the lock, unless another writer saved it since its revision. Locks are never deleted here."""
        if self.load_lock(lock.job_id, lock.name).revision != lock.revision:
            raise StaleRecord(f"lock {lock.name} of job {lock.job_id} was written since revision {lock.revision}")
        names = {name for job_id, name in self.locks if job_id == lock.job_id}
        if lock.name not in names and len(names) >= LOCKS_MAX:
            raise TooManyLocks(lock)
        self.locks[lock.job_id, lock.name] = replace(lock, revision=lock.revision + 1)
