"""GPU locks in the job table: one item under the key `<job>#lock#<name>`, with optimistic locking by revision.

The item `<job>#locks` holds the names of all locks of a job, so that their number has an upper bound.
"""

from __future__ import annotations

from datetime import datetime

from gpu_recovery.aws.dynamodb import Put, typed
from gpu_recovery.aws.item_codec import TTL, decode, item_of, reading
from gpu_recovery.aws.pending_commands import RecordTable
from gpu_recovery.core.gpu_lock import LOCKS_MAX, UNUSED_TTL, GpuLockRecord, TooManyLocks
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

    def save_lock(self, lock: GpuLockRecord, now: datetime) -> None:
        """Save the lock until UNUSED_TTL after `now`. Raises StaleRecord and TooManyLocks."""
        item = {
            **item_of(lock),
            "revision": lock.revision + 1,
            "job_id_rank": lock_key(lock.job_id, lock.name),
            TTL: int((now + UNUSED_TTL).timestamp()),
        }
        if lock.revision:
            is_saved = self.jobs.put(item, "revision = :read", {":read": lock.revision})
        else:
            is_saved = self._create(lock, Put(item, "attribute_not_exists(job_id_rank)"))
        if not is_saved:
            raise StaleRecord(f"lock {lock.name} of job {lock.job_id} was written since revision {lock.revision}")

    def _create(self, lock: GpuLockRecord, put: Put) -> bool:
        """Write a new lock and its name, both or neither. Return whether they were written. Raises TooManyLocks."""
        known = "attribute_not_exists(lock_names) OR contains(lock_names, :name) OR size(lock_names) < :most"
        name = {
            "TableName": self.jobs.name,
            "Key": typed({"job_id_rank": f"{lock.job_id}#locks"}),
            "UpdateExpression": "ADD lock_names :names",
            "ConditionExpression": known,
            "ExpressionAttributeValues": typed({":name": lock.name, ":names": {lock.name}, ":most": LOCKS_MAX}),
        }
        refused = self.jobs.transact([{"Put": {"TableName": self.jobs.name, **put.request()}}, {"Update": name}])
        if refused == {1: "ConditionalCheckFailed"}:
            raise TooManyLocks(lock)
        return not refused
