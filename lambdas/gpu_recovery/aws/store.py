"""Store on two DynamoDB tables: one for jobs and what belongs to them, the other for instances."""

from __future__ import annotations

from typing import Any

from gpu_recovery.aws.agent_task_store import DynamoAgentTaskStore
from gpu_recovery.aws.gpu_lock_store import LockStore
from gpu_recovery.aws.heartbeat_store import DynamoHeartbeatStore
from gpu_recovery.aws.notification_store import DynamoNotificationStore
from gpu_recovery.aws.observation_store import DynamoObservationStore


class DynamoStore(
    DynamoObservationStore, LockStore, DynamoNotificationStore, DynamoAgentTaskStore, DynamoHeartbeatStore
):
    """`ports.Store` on two DynamoDB tables.

    client:         a low-level boto3 DynamoDB client.
    job_table:      name of the job table.
    instance_table: name of the instance table.
    """

    def __init__(self, client: Any, job_table: str, instance_table: str) -> None:
        DynamoObservationStore.__init__(self, client, job_table)
        DynamoHeartbeatStore.__init__(self, client, instance_table)
