"""Locks of jobs, beside them in the same table: `<job>#lock#<name>`, one item each, written under its revision."""

from __future__ import annotations

from gpu_recovery.aws.item_codec import decode, item_of, reading
from gpu_recovery.aws.pending_commands import RecordTable
from gpu_recovery.core.gpu_lock import GpuLockRecord
from gpu_recovery.ports.errors import StaleRecord


def lock_key(job_id: str, name: str) -> str:
    """The key of a lock."""
    return f"{job_id}#lock#{name}"


class LockStore:
    """The part of the store that keeps locks; see `ports.Store` for what each function promises."""

    jobs: RecordTable

    def load_lock(self, job_id: str, name: str) -> GpuLockRecord:
        item = self.jobs.get(lock_key(job_id, name))
        if item is None:
            return GpuLockRecord(job_id, name)
        with reading(f"lock {item['job_id_rank']}", item):
            found: GpuLockRecord = decode(GpuLockRecord, item)
            return found

    def save_lock(self, lock: GpuLockRecord) -> None:
        item = {**item_of(lock), "revision": lock.revision + 1, "job_id_rank": lock_key(lock.job_id, lock.name)}
        condition = "revision = :read" if lock.revision else "attribute_not_exists(job_id_rank)"
        if not self.jobs.put(item, condition, {":read": lock.revision} if lock.revision else {}):
            raise StaleRecord(f"lock {lock.name} of job {lock.job_id} was written since revision {lock.revision}")
