"""Submissions in the table of jobs: the record, its text and the key it came with, written in one transaction."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from ..core.job.record import Job
from ..core.queue.quota import Limits, parse_limits
from ..submitting import Submission
from .items import SCHEMA, from_iso, reading, to_iso
from .job_store import _item as job_item
from .line_store import LIMITS
from .tables import Put, Table

NEW = "attribute_not_exists(job_id_rank)"
TTL = "expires_s"
"""The attribute by which DynamoDB deletes a key that is remembered no longer: seconds since 1970."""


class DynamoSubmissions:
    """`submitting.Submissions` on DynamoDB; `client` is a low-level boto3 DynamoDB client."""

    def __init__(self, client: Any, job_table: str) -> None:
        self.jobs = Table(client, job_table, "job_id_rank")

    def read(self, name: str, now: datetime) -> tuple[Limits, Submission | None]:
        found = self.jobs.get_all([LIMITS, *([_key(name)] if name else [])])
        kept = _submission(name, found[_key(name)]) if name and _key(name) in found else None
        limits = parse_limits(json.loads(found[LIMITS]["document"])) if LIMITS in found else Limits()
        return limits, kept if kept is not None and now < kept.kept_until else None

    def keep(self, record: Job, submitted: str, submission: Submission | None, now: datetime) -> bool:
        puts = [
            Put(job_item(replace(record, revision=1)), NEW),
            Put({"job_id_rank": f"{record.job_id}#spec", "submitted": submitted}, NEW),
        ]
        if submission is not None:
            forgotten = f"{NEW} OR {TTL} <= :now"  # DynamoDB takes days to delete what is over
            puts.append(Put(_submission_item(submission), forgotten, {":now": _seconds(now)}))
        return self.jobs.put_all(puts)


def _key(name: str) -> str:
    return f"submission#{name}"


def _seconds(time: datetime) -> int:
    return int(time.astimezone(UTC).timestamp())


def _submission_item(submission: Submission) -> dict[str, Any]:
    return {
        "job_id_rank": _key(submission.name), "schema": SCHEMA, "digest": submission.digest,
        "job_id": submission.job_id, "kept_until": to_iso(submission.kept_until),
        TTL: _seconds(submission.kept_until),
    }  # fmt: skip


def _submission(name: str, item: Mapping[str, Any]) -> Submission:
    with reading(f"submission {name}", item, "digest", "job_id", "kept_until"):
        return Submission(name, item["digest"], item["job_id"], from_iso(item["kept_until"]))
