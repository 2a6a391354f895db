"""The plans and the progress of a job's attempts, read together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpu_recovery.aws.attempt_store import _progress as progress_of
from gpu_recovery.aws.attempt_store import plan_key, progress_key
from gpu_recovery.aws.dynamodb import Table
from gpu_recovery.aws.item_codec import decode, reading
from gpu_recovery.core.attempt import Plan, Progress


class DynamoAttemptHistory:
    """`routes.desk.AttemptHistory` on DynamoDB; `client` is a low-level boto3 DynamoDB client."""

    def __init__(self, client: Any, job_table: str) -> None:
        self.jobs = Table(client, job_table, "job_id_rank")

    def of(self, job_id: str, attempts: Sequence[int]) -> Mapping[int, tuple[Plan | None, Progress | None]]:
        keys = [key(job_id, number) for number in attempts for key in (plan_key, progress_key)]
        found = self.jobs.get_all(keys)
        return {
            number: (
                _plan(found.get(plan_key(job_id, number))),
                progress_of(found[progress_key(job_id, number)]) if progress_key(job_id, number) in found else None,
            )
            for number in attempts
        }


def _plan(item: Mapping[str, Any] | None) -> Plan | None:
    if item is None:
        return None
    with reading(f"plan {item['job_id_rank']}", item):
        plan: Plan = decode(Plan, item)
        return plan
