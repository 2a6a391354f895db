"""The instance of each task of the agent's daemon service, in the job table: an item under `#agent-task#<task id>`.

The item is deleted by its TTL.
"""

from __future__ import annotations

from datetime import UTC, datetime

from gpu_recovery.aws.item_codec import SCHEMA, TTL
from gpu_recovery.aws.pending_commands import RecordTable


class DynamoAgentTaskStore:
    """The tasks of the agent's service; see `ports.store.AgentTaskStore` for the contract of each method."""

    jobs: RecordTable

    def load_agent_task(self, task_id: str, now: datetime) -> tuple[str, datetime] | None:
        """Return the instance of a task and until when it is remembered. DynamoDB may delete an item days late."""
        item = self.jobs.get(_key(task_id))
        if item is None or item.get(TTL, 0) <= now.timestamp():
            return None
        return str(item["instance_id"]), datetime.fromtimestamp(int(item[TTL]), UTC)

    def save_agent_task(self, task_id: str, instance_id: str, until: datetime) -> None:
        """Write the instance of a task, unless an item with a later end is stored."""
        item = {
            "job_id_rank": _key(task_id),
            "schema": SCHEMA,
            "instance_id": instance_id,
            TTL: int(until.timestamp()),
        }
        self.jobs.put(item, f"attribute_not_exists(job_id_rank) OR {TTL} < :until", {":until": item[TTL]})


def _key(task_id: str) -> str:
    return f"#agent-task#{task_id}"
