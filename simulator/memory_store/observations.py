"""Reports for diagnoses, and locks, in memory: that part of `ports.Store`, with the answers that DynamoDB gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gpu_recovery.core.diagnosis.observation_buffer import ObservationBuffer, added
from gpu_recovery.core.diagnosis.observations import Observation
from gpu_recovery.core.gpu_lock import GpuLockRecord
from gpu_recovery.ports.errors import StaleRecord


class MemoryObservations:
    """See `ports.Store` for what each function promises."""

    def __init__(self) -> None:
        self.reported: dict[tuple[str, int, str], ObservationBuffer] = {}
        self.locks: dict[tuple[str, str], GpuLockRecord] = {}

    def add_observations(
        self, job_id: str, attempt: int, instance_id: str, reports: Sequence[Observation], lost: int = 0
    ) -> None:
        key = (job_id, attempt, instance_id)
        # To the millisecond, as a table keeps them.
        found = [replace(one, at_s=round(one.at_s, 3)) for one in reports]
        after = added(self.reported.get(key, ObservationBuffer()), found, lost)
        if after is not None:
            self.reported[key] = after

    def observations_of(
        self, job_id: str, attempt: int, instance_ids: Sequence[str]
    ) -> Mapping[str, ObservationBuffer]:
        found = {one: self.reported.get((job_id, attempt, one)) for one in instance_ids}
        return {one: kept for one, kept in found.items() if kept is not None}

    def load_lock(self, job_id: str, name: str) -> GpuLockRecord:
        return self.locks.get((job_id, name), GpuLockRecord(job_id, name))

    def save_lock(self, lock: GpuLockRecord) -> None:
        if self.load_lock(lock.job_id, lock.name).revision != lock.revision:
            raise StaleRecord(f"lock {lock.name} of job {lock.job_id} was written since revision {lock.revision}")
        self.locks[lock.job_id, lock.name] = replace(lock, revision=lock.revision + 1)
