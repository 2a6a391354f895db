"""The store on DynamoDB: jobs and their attempts in one table, instances and their heartbeats in the other."""

from __future__ import annotations

from typing import Any

from .attempt_store import AttemptStore
from .beat_store import BeatStore


class DynamoStore(AttemptStore, BeatStore):
    """`ports.Store` on two DynamoDB tables; `client` is a low-level boto3 DynamoDB client."""

    def __init__(self, client: Any, job_table: str, instance_table: str) -> None:
        AttemptStore.__init__(self, client, job_table)
        BeatStore.__init__(self, client, instance_table)
