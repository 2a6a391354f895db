"""The line beside the job records: what a pass of the scheduler reads, its term, the quotas and their limits.

Each job that waits or has its place carries its entry as JSON text in a sparse index, so that a pass over ten thousand
jobs is a few queries and no record is opened. What an index shows may be old: every decision made of it is fenced by
the version of the record. The counts of quotas are not read from it; they change in the jobs' own writes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from typing import Any

from gpu_recovery.aws.dynamodb import Put, Table, typed
from gpu_recovery.aws.item_codec import encode, from_iso, readable, reading
from gpu_recovery.core.job.queue_entry import entry_of
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.queue.entry import Entry, LastPass
from gpu_recovery.core.queue.priority import Priority
from gpu_recovery.core.queue.run_time_estimates import RunTime
from gpu_recovery.core.ray.placement import is_in_the_pool
from gpu_recovery.core.state_machine import QuotaChange
from gpu_recovery.ports.errors import StaleRecord, TermOver

SCHEDULER, LIMITS, QUOTA, RUN_TIMES = "#scheduler", "#limits", "#quota/", "#run-times/"
"""Keys of the job table that no job can have: the id of a job never begins so."""
SLOT = "ran_"
"""What the attributes begin with that hold the run times of a kind."""
WAITING, PLACED, ON_RAY = "waiting", "placed", "ray"
_USUAL: dict[str, Any] = {field.name: field.default for field in fields(Entry)} | {"suspects": {}}
"""What is not written of an entry, because it is so where nothing is said; MISSING where it is always said."""
_TIMES = ("queued_at", "placed_at", "not_before", "suspended_at", "running_at")


def queue_keys(job: Job) -> dict[str, Any]:
    """The attributes that put a job into the sparse index `line`; none for one that neither waits nor has a place."""
    if is_in_the_pool(job):
        return {"line": ON_RAY, "line_at": encode(job.queued_at)}
    entry = entry_of(job)
    if entry is None:
        return {}
    told = encode(entry)
    written = {name: told[name] for name, usual in _USUAL.items() if usual is MISSING or getattr(entry, name) != usual}
    return {
        "line": WAITING if entry.waits else PLACED,
        "line_at": encode(job.queued_at),
        "line_entry": json.dumps(written, separators=(",", ":")),
    }


def entry_from(text: str) -> Entry:
    """The entry that was written as `text`. Raises KeyError, TypeError and ValueError for what is none."""
    written = json.loads(text)
    values: dict[str, Any] = {**written}
    values |= {key: from_iso(written[key]) for key in _TIMES if key in written}
    values["asked"] = Priority(values["asked"])
    values["instances"] = tuple(written.get("instances", ()))
    values["suspensions"] = tuple(from_iso(at) for at in written.get("suspensions", ()))
    # What a newer release has added is passed over, as it is in every record.
    return Entry(**{name: value for name, value in values.items() if name in _USUAL})


class DynamoQueueStore:
    """The part of the store that the scheduler reads; see `ports.Store` for what each function promises."""

    jobs: Table

    def load_queue(self, unreadable: list[Exception] | None = None) -> tuple[Entry, ...]:
        items = (
            item
            for part in (WAITING, PLACED)
            for item in self.jobs.query("line", "#l = :l", {"#l": "line"}, {":l": part})
        )
        found = readable(_entry, items, unreadable)
        return tuple({entry.job_id: entry for entry in found}.values())

    def load_last_pass(self) -> LastPass:
        item = self.jobs.get(SCHEDULER)
        if item is None:
            return LastPass()
        at, next_at = item.get("at"), item.get("next_at")
        return LastPass(
            int(item["term"]),
            from_iso(at) if at else None,
            from_iso(next_at) if next_at else None,
            int(item.get("waiting", 0)),
        )

    def begin_term(self) -> int:
        # Until a pass comes to its end nothing is known: whoever dies on the way leaves the next tick something to do.
        change = "SET term = if_not_exists(term, :none) + :one REMOVE #at"
        item = self.jobs.update(
            SCHEDULER,
            change,
            "attribute_not_exists(job_id_rank) OR attribute_exists(job_id_rank)",
            {"#at": "at"},
            {":none": 0, ":one": 1},
        )
        assert item is not None  # the condition always holds
        return int(item["term"])

    def save_pass(self, ended: LastPass) -> None:
        values = {":at": encode(ended.at), ":next": encode(ended.next_at), ":left": ended.waiting, ":term": ended.term}
        change = "SET #at = :at, next_at = :next, waiting = :left"
        self.jobs.update(SCHEDULER, change, "term = :term", {"#at": "at"}, values)

    def quota_used(self, keys: Iterable[str]) -> Mapping[str, int]:
        wanted = {QUOTA + key: key for key in keys}
        found = self.jobs.get_all(list(wanted))
        return {key: int(found[name]["used"]) if name in found else 0 for name, key in wanted.items()}

    def load_run_times(self, kinds: Iterable[str]) -> Mapping[str, tuple[int, ...]]:
        wanted = {RUN_TIMES + kind: kind for kind in kinds}
        found = self.jobs.get_all(list(wanted))
        return {
            kind: tuple(int(value) for slot, value in sorted(found.get(name, {}).items()) if slot.startswith(SLOT))
            for name, kind in wanted.items()
        }

    def load_limits(self) -> tuple[Mapping[str, Any], int]:
        item = self.jobs.get(LIMITS)
        return (json.loads(item["document"]), int(item["revision"])) if item else ({}, 0)

    def save_limits(self, document: Mapping[str, Any], revision: int) -> int:
        item = {"job_id_rank": LIMITS, "document": json.dumps(document), "revision": revision + 1}
        condition = "revision = :read" if revision else "attribute_not_exists(job_id_rank)"
        if not self.jobs.put(item, condition, {":read": revision} if revision else {}):
            raise StaleRecord(f"the limits were written since revision {revision}")
        return revision + 1

    def put_job(self, put: Put, job_id: str, quota: QuotaChange | None) -> None:
        """Write a job's item and what it changes in its user's count, both or neither. Raises StaleRecord, TermOver."""
        if quota is None:
            if not self.jobs.put(put.item, put.condition, put.values):
                raise StaleRecord(f"job {job_id} was written since")
            return
        actions: list[dict[str, Any]] = [{"Put": {"TableName": self.jobs.name, **put.request()}}]
        if quota.term is not None:
            actions.append(_in_term(self.jobs.name, quota.term))
        if quota.nodes:
            actions.append(_counted(self.jobs.name, quota))
        if quota.ran is not None:
            actions.append(_ran(self.jobs.name, quota.ran))
        refused = self.jobs.transact(actions)
        if refused.get(1) == "ConditionalCheckFailed" and quota.term is not None:
            raise TermOver(f"the scheduler's term {quota.term} is over: another has begun")
        if refused:
            raise StaleRecord(f"job {job_id} was written since")


def _in_term(table: str, term: int) -> dict[str, Any]:
    return {
        "ConditionCheck": {
            "TableName": table,
            "Key": typed({"job_id_rank": SCHEDULER}),
            "ConditionExpression": "term = :term",
            "ExpressionAttributeValues": typed({":term": term}),
        }
    }


def _counted(table: str, quota: QuotaChange) -> dict[str, Any]:
    return {
        "Update": {
            "TableName": table,
            "Key": typed({"job_id_rank": QUOTA + quota.key}),
            "UpdateExpression": "ADD used :n",
            "ExpressionAttributeValues": typed({":n": quota.nodes}),
        }
    }


def _ran(table: str, ran: RunTime) -> dict[str, Any]:
    return {
        "Update": {
            "TableName": table,
            "Key": typed({"job_id_rank": RUN_TIMES + ran.kind}),
            "UpdateExpression": "SET #slot = :s",
            "ExpressionAttributeNames": {"#slot": f"{SLOT}{ran.slot}"},
            "ExpressionAttributeValues": typed({":s": ran.seconds}),
        }
    }


def _entry(item: Mapping[str, Any]) -> Entry:
    with reading(f"the line's entry of job {item['job_id_rank']}", item, "line_entry"):
        return entry_from(item["line_entry"])
