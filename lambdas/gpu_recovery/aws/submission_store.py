"""Submissions in the job table: a job's record, its submitted text and its Idempotency-Key in one transaction."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from gpu_recovery.auth.tokens import Token
from gpu_recovery.aws.dynamodb import Put, Table, get_together
from gpu_recovery.aws.instance_store import FLEET
from gpu_recovery.aws.item_codec import SCHEMA, TTL, from_iso, reading, to_iso
from gpu_recovery.aws.job_store import job_item
from gpu_recovery.aws.queue_store import LIMITS
from gpu_recovery.aws.token_store import DynamoUserTokenStore
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.queue.quota import QuotaLimits, parse_limits
from gpu_recovery.job_api.submission import Submission, SubmissionFacts

NEW = "attribute_not_exists(job_id_rank)"


_Items = Mapping[str, Mapping[str, Any]]
KNOWN_FOR = timedelta(seconds=5)
"""Time for which facts that were read together with a caller's token stay valid: they serve that caller's request."""


class DynamoSubmissions:
    """`job_api.submission.Submissions` on DynamoDB; `client` is a low-level boto3 DynamoDB client.

    Every submission needs the quota limits and whether the cluster is empty. Both are read in one call with the
    Idempotency-Key, or earlier, together with the token of a caller that is not cached. In the second case the key is
    not read, and the write detects a used key.
    """

    def __init__(self, client: Any, job_table: str, instance_table: str) -> None:
        self.jobs = Table(client, job_table, "job_id_rank")
        self.instances = Table(client, instance_table, "container_inst_id")
        self._prefetched: tuple[datetime, _Items] | None = None

    def read(self, name: str, now: datetime, must_read_key: bool = False) -> SubmissionFacts:
        """Return the facts that a submission needs, with at most one call.

        Args:
            name: the name of the Idempotency-Key; "" if the caller sent none.
            now: the present time.
            must_read_key: whether the key must be read even if the other facts are cached.
        """
        prefetched, self._prefetched = self._prefetched, None
        if prefetched is not None and not must_read_key and now - prefetched[0] < KNOWN_FOR:
            return _facts(prefetched[1])
        items = self._read([_key(name)] if name else [])
        before = _submission(name, items[_key(name)]) if name and _key(name) in items else None
        return replace(_facts(items), before=before if before is not None and now < before.kept_until else None)

    def read_with_facts(self, key: str, now: datetime) -> Mapping[str, Any] | None:
        """Return the item of the job table under `key`, and cache the facts for the next submission.

        Both are read in the same call. None if there is no such item.
        """
        items = self._read([key])
        self._prefetched = (now, items)
        return items.get(key)

    def _read(self, keys: Sequence[str]) -> _Items:
        by_table = get_together({self.jobs: [LIMITS, *keys], self.instances: [FLEET]})
        return {**by_table[self.jobs], **by_table[self.instances]}

    def save(self, record: Job, submitted: str, submission: Submission | None, now: datetime) -> bool:
        """Save a new job, its submitted text and its Idempotency-Key: all or none.

        Args:
            record: the job.
            submitted: the submitted text.
            submission: the key with the digest of its specification; None if the caller sent no key.
            now: the present time. A key that has expired before it may be used again.

        Returns:
            False, without a write, if the job id or the key is taken.
        """
        puts = [
            Put(job_item(replace(record, revision=1)), NEW),
            Put({"job_id_rank": f"{record.job_id}#spec", "submitted": submitted}, NEW),
        ]
        if submission is not None:
            free = f"{NEW} OR {TTL} <= :now"  # DynamoDB may delete an expired item days late
            puts.append(Put(_submission_item(submission), free, {":now": _seconds(now)}))
        return self.jobs.put_all(puts)


def _facts(items: _Items) -> SubmissionFacts:
    limits = parse_limits(json.loads(items[LIMITS]["document"])) if LIMITS in items else QuotaLimits()
    return SubmissionFacts(limits, is_empty=not items.get(FLEET, {}).get("gpu_instances"))


class UserTokensWithSubmission:
    """`auth.tokens.TokenLookup` of users: reads a token together with the facts that a submission needs."""

    def __init__(
        self, users: DynamoUserTokenStore, submissions: DynamoSubmissions, clock: Callable[[], datetime]
    ) -> None:
        self._users, self._submissions, self._clock = users, submissions, clock

    def load_token(self, token_id: str) -> Token | None:
        """Return the token with this id; None if there is none. Raises ItemUnreadable."""
        item = self._submissions.read_with_facts(self._users.key_of(token_id), self._clock())
        return None if item is None else self._users.token_of(token_id, item)


def _key(name: str) -> str:
    return f"submission#{name}"


def _seconds(time: datetime) -> int:
    return int(time.astimezone(UTC).timestamp())


def _submission_item(submission: Submission) -> dict[str, Any]:
    return {
        "job_id_rank": _key(submission.name),
        "schema": SCHEMA,
        "digest": submission.digest,
        "job_id": submission.job_id,
        "kept_until": to_iso(submission.kept_until),
        TTL: _seconds(submission.kept_until),
    }


def _submission(name: str, item: Mapping[str, Any]) -> Submission:
    with reading(f"submission {name}", item, "digest", "job_id", "kept_until"):
        return Submission(name, item["digest"], item["job_id"], from_iso(item["kept_until"]))
