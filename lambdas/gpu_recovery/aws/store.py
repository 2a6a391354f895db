"""The store on DynamoDB: jobs, their attempts and what is told of them in one table, instances in the other."""

from __future__ import annotations

from typing import Any

from gpu_recovery.aws.gpu_lock_store import LockStore
from gpu_recovery.aws.heartbeat_store import DynamoHeartbeatStore
from gpu_recovery.aws.observation_store import DynamoObservationStore


class DynamoStore(DynamoObservationStore, LockStore, DynamoHeartbeatStore):
    """`ports.Store` on two DynamoDB tables; `client` is a low-level boto3 DynamoDB client."""

    def __init__(self, client: Any, job_table: str, instance_table: str) -> None:
        DynamoObservationStore.__init__(self, client, job_table)
        DynamoHeartbeatStore.__init__(self, client, instance_table)
