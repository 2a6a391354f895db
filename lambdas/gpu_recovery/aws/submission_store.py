"""Submissions in the table of jobs: the record, its text and the key it came with, written in one transaction."""

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
from gpu_recovery.aws.job_store import _item as job_item
from gpu_recovery.aws.queue_store import LIMITS
from gpu_recovery.aws.token_store import DynamoUserTokenStore
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.queue.quota import QuotaLimits, parse_limits
from gpu_recovery.job_api.submission import Submission, SubmissionFacts

NEW = "attribute_not_exists(job_id_rank)"


_Items = Mapping[str, Mapping[str, Any]]
KNOWN_FOR = timedelta(seconds=5)
"""For so long what was read along with a caller's token is at hand: for the request that it was read in."""


class DynamoSubmissions:
    """`job_api.submission.Submissions` on DynamoDB; `client` is a low-level boto3 DynamoDB client.

    What every submission has to know, the limits and whether the cluster is empty, is read in one call with the key, or
    along with the token of a caller who is not known yet; then the key is left to the write.
    """

    def __init__(self, client: Any, job_table: str, instance_table: str) -> None:
        self.jobs = Table(client, job_table, "job_id_rank")
        self.instances = Table(client, instance_table, "container_inst_id")
        self._at_hand: tuple[datetime, _Items] | None = None

    def read(self, name: str, now: datetime, must_read_key: bool = False) -> SubmissionFacts:
        at_hand, self._at_hand = self._at_hand, None
        if at_hand is not None and not must_read_key and now - at_hand[0] < KNOWN_FOR:
            return _known(at_hand[1])
        found = self._read([_key(name)] if name else [])
        kept = _submission(name, found[_key(name)]) if name and _key(name) in found else None
        return replace(_known(found), before=kept if kept is not None and now < kept.kept_until else None)

    def along_with(self, key: str, now: datetime) -> Mapping[str, Any] | None:
        """The item of jobs under `key`, and what the next submission has to know in the same call."""
        found = self._read([key])
        self._at_hand = (now, found)
        return found.get(key)

    def _read(self, keys: Sequence[str]) -> _Items:
        both = get_together({self.jobs: [LIMITS, *keys], self.instances: [FLEET]})
        return {**both[self.jobs], **both[self.instances]}

    def save(self, record: Job, submitted: str, submission: Submission | None, now: datetime) -> bool:
        puts = [
            Put(job_item(replace(record, revision=1)), NEW),
            Put({"job_id_rank": f"{record.job_id}#spec", "submitted": submitted}, NEW),
        ]
        if submission is not None:
            forgotten = f"{NEW} OR {TTL} <= :now"  # DynamoDB takes days to delete what is over
            puts.append(Put(_submission_item(submission), forgotten, {":now": _seconds(now)}))
        return self.jobs.put_all(puts)


def _known(items: _Items) -> SubmissionFacts:
    limits = parse_limits(json.loads(items[LIMITS]["document"])) if LIMITS in items else QuotaLimits()
    return SubmissionFacts(limits, is_empty=not items.get(FLEET, {}).get("gpu_instances"))


class UserTokensWithSubmission:
    """`tokens.TokenLookup` of users: reads an unknown token together with what a submission has to know."""

    def __init__(
        self, users: DynamoUserTokenStore, submissions: DynamoSubmissions, clock: Callable[[], datetime]
    ) -> None:
        self._users, self._submissions, self._clock = users, submissions, clock

    def load_token(self, token_id: str) -> Token | None:
        """As the store of tokens."""
        item = self._submissions.along_with(self._users.key_of(token_id), self._clock())
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
