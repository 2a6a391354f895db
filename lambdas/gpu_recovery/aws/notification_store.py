"""Marks of sent notifications in the job table: one item under the key `#notified#<incident>`, deleted by its TTL."""

from __future__ import annotations

from datetime import datetime

from gpu_recovery.aws.item_codec import SCHEMA, TTL
from gpu_recovery.aws.pending_commands import RecordTable


def mark_key(incident_id: str) -> str:
    """Return the key of the mark of an incident."""
    return f"#notified#{incident_id}"


class DynamoNotificationStore:
    """The marks of the store; see `ports.store.NotificationStore` for the contract of each method."""

    jobs: RecordTable

    def is_notified(self, incident_id: str, now: datetime) -> bool:
        """Return whether the mark exists. DynamoDB may delete an expired item days late, so its time is compared."""
        item = self.jobs.get(mark_key(incident_id))
        return item is not None and item.get(TTL, 0) > now.timestamp()

    def mark_notified(self, incident_id: str, until: datetime) -> None:
        """Write the mark, unless a mark with a later end is stored."""
        item = {"job_id_rank": mark_key(incident_id), "schema": SCHEMA, TTL: int(until.timestamp())}
        self.jobs.put(item, f"attribute_not_exists(job_id_rank) OR {TTL} < :until", {":until": item[TTL]})
