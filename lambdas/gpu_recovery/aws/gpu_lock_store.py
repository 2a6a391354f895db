"""GPU locks in the job table: one item under the key `<job>#lock#<name>`, with optimistic locking by revision."""

from __future__ import annotations

from gpu_recovery.aws.item_codec import decode, item_of, reading
from gpu_recovery.aws.pending_commands import RecordTable
from gpu_recovery.core.gpu_lock import GpuLockRecord
from gpu_recovery.ports.errors import StaleRecord


def lock_key(job_id: str, name: str) -> str:
    """Return the key of a lock."""
    return f"{job_id}#lock#{name}"


class LockStore:
    """The GPU locks of the store; see `ports.store.GpuLockStore` for the contract of each method."""

    jobs: RecordTable

    def load_lock(self, job_id: str, name: str) -> GpuLockRecord:
        """Return the lock, consistently read; a blank lock if none is stored."""
        item = self.jobs.get(lock_key(job_id, name))
        if item is None:
            return GpuLockRecord(job_id, name)
        with reading(f"lock {item['job_id_rank']}", item):
            lock: GpuLockRecord = decode(GpuLockRecord, item)
            return lock

    def save_lock(self, lock: GpuLockRecord) -> None:
        """Save the lock. Raises StaleRecord if another writer saved it since its revision."""
        item = {**item_of(lock), "revision": lock.revision + 1, "job_id_rank": lock_key(lock.job_id, lock.name)}
        condition = "revision = :read" if lock.revision else "attribute_not_exists(job_id_rank)"
        if not self.jobs.put(item, condition, {":read": lock.revision} if lock.revision else {}):
            raise StaleRecord(f"lock {lock.name} of job {lock.job_id} was written since revision {lock.revision}")
