"""The limits of users: one item in the table of jobs, its document as JSON text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..core.queue.quota import Limits, LimitsInvalid, parse_limits
from ..ports import StaleRecord
from .items import SCHEMA, ItemUnreadable, reading
from .tables import Table

LIMITS = "queue#limits"
"""No job is called so: the names of jobs hold no #."""


class DynamoLimits:
    """`routes.desk.LimitsStore` on DynamoDB; `client` is a low-level boto3 DynamoDB client."""

    def __init__(self, client: Any, job_table: str) -> None:
        self.jobs = Table(client, job_table, "job_id_rank")

    def load(self) -> tuple[Limits, int]:
        return limits_of(self.jobs.get(LIMITS))

    def save(self, limits: Limits, revision: int) -> int:
        item = {
            "job_id_rank": LIMITS, "schema": SCHEMA, "document": json.dumps(limits.document()),
            "revision": revision + 1,
        }  # fmt: skip
        condition = "revision = :read" if revision else "attribute_not_exists(job_id_rank)"
        if not self.jobs.put(item, condition, {":read": revision} if revision else {}):
            raise StaleRecord(f"the limits were written since revision {revision}")
        return revision + 1


def limits_of(item: Mapping[str, Any] | None) -> tuple[Limits, int]:
    """The limits of their item and its revision; no limits and 0 without one."""
    if item is None:
        return Limits(), 0
    with reading("the limits", item, "document", "revision"):
        try:
            return parse_limits(json.loads(item["document"])), int(item["revision"])
        except LimitsInvalid as error:
            raise ItemUnreadable(f"the limits: {error}") from error
