"""Queue in the job table: queue entries, the scheduler's term and last pass, quota counts and limits, run times.

Each queued or placed job has its queue entry as JSON text in a sparse index. So a pass over ten thousand jobs needs a
few queries and reads no record. An entry in the index may be outdated, therefore the version of the record fences every
decision that is based on it. Quota counts are not derived from the index; they change in the same writes as the jobs.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import MISSING, fields
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from gpu_recovery.aws.dynamodb import Put, Table, typed
from gpu_recovery.aws.item_codec import encode, from_iso, readable, reading, to_iso
from gpu_recovery.core.job.queue_entry import entry_of, entry_on_ray
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.queue.entry import Entry, LastPass
from gpu_recovery.core.queue.priority import Priority
from gpu_recovery.core.queue.run_time_estimates import RunTime
from gpu_recovery.core.state_machine import QuotaChange
from gpu_recovery.ports.errors import StaleRecord, TermOver

SCHEDULER, LIMITS, QUOTA, RUN_TIMES = "#scheduler", "#limits", "#quota/", "#run-times/"
"""Keys, and prefixes of keys, of the job table that are no jobs: a job id never begins with `#`."""
CHANGED, CHANGED_MAX = "#changed-instances", 64
"""Key of the item with the instances that changed since the last pass, and the number of ids that it holds at most.

The next pass reads these records directly, because an index may lag. Each write costs by the size of the item.
"""
TAKES_MAX = 3
"""Tries to forget exactly the changed instances that were read."""
WAKE_OVERDUE = timedelta(seconds=60)
"""Time after which a message to the scheduler counts as lost: the function that was to send it was killed."""
SLOT = "ran_"
"""Prefix of the attributes that hold the run times of a job kind."""
PLACEMENT = "placed_"
"""Prefix of the attributes of `#scheduler` that hold the time of a placement, each with the id of its job."""
REMOVED_MAX = 400
"""Upper bound of the placements that one write removes. Its expression may have 4 KB."""
PLACED, ON_RAY = "placed", "ray"
"""Partition keys of the sparse index `line`: placed jobs, and jobs on Ray."""
WAITING = ("waiting", "waiting/1", "waiting/2", "waiting/3")
"""Partition keys of queued jobs, chosen by a number of the job. Each costs one query of a pass.

A partition key gives 3,000 read units a second. 50,000 entries of 420 bytes are 2,600 units, and the scheduler, the
reconciler and the API may read them in the same second: 3 x 2,600 / 4 = 1,950. The longest name of a job adds 73 bytes.
"""


@cache
def _defaults() -> dict[str, Any]:
    """Return the default of each field of an entry. A field with its default is not written, MISSING fields are."""
    return {field.name: field.default for field in fields(Entry)} | {"suspects": {}, "refused": {}}


@cache
def _times() -> tuple[str, ...]:
    """Return the fields of an entry that are a time or None."""
    return tuple(field.name for field in fields(Entry) if field.type in ("datetime", "datetime | None"))


def queue_keys(job: Job) -> dict[str, Any]:
    """Return the attributes of a job in the sparse index `line`; none if the job is neither queued nor placed."""
    if (on_ray := entry_on_ray(job)) is not None:
        return _keys_of(on_ray, ON_RAY)
    entry = entry_of(job)
    if entry is None:
        return {}
    return _keys_of(entry, waiting_key(job.job_id) if entry.waits else PLACED)


def _keys_of(entry: Entry, partition: str) -> dict[str, Any]:
    encoded = encode(entry)
    changed = {
        name: encoded[name]
        for name, default in _defaults().items()
        if default is MISSING or getattr(entry, name) != default
    }
    return {
        "line": partition,
        "line_at": encode(entry.queued_at),
        "line_entry": json.dumps(changed, separators=(",", ":")),
    }


def waiting_key(job_id: str) -> str:
    """Return the partition key of a queued job."""
    return WAITING[zlib.crc32(job_id.encode()) % len(WAITING)]


def entry_from(text: str) -> Entry:
    """Return the queue entry that was written as `text`.

    Raises:
        KeyError, TypeError, ValueError: the text is no queue entry.
    """
    document = json.loads(text)
    values: dict[str, Any] = {**document}
    values |= {key: from_iso(document[key]) for key in _times() if key in document}
    values["asked"] = Priority(values["asked"])
    values["instances"] = tuple(document.get("instances", ()))
    for name in ("let_go", "spares", "ready"):
        values[name] = tuple(document.get(name, ()))
    values["refused"] = {name: from_iso(at) for name, at in document.get("refused", {}).items()}
    values["suspensions"] = tuple(from_iso(at) for at in document.get("suspensions", ()))
    # Fields that a newer release has added are ignored, as in every record.
    return Entry(**{name: value for name, value in values.items() if name in _defaults()})


class DynamoQueueStore:
    """The queue data of the store; see `ports.store.QueueStore` for the contract of each method."""

    jobs: Table

    def load_queue(self, unreadable: list[Exception] | None = None) -> tuple[Entry, ...]:
        """Return the queue entries of all queued and placed jobs. An entry may be outdated."""
        return self._entries((*WAITING, PLACED), unreadable)

    def load_waiting(self, unreadable: list[Exception] | None = None) -> tuple[Entry, ...]:
        """Return the queue entries of all queued jobs. An entry may be outdated."""
        return self._entries(WAITING, unreadable)

    def _entries(self, partitions: Iterable[str], unreadable: list[Exception] | None) -> tuple[Entry, ...]:
        items = (
            item
            for partition in partitions
            for item in self.jobs.query("line", "#l = :l", {"#l": "line"}, {":l": partition})
        )
        # A job that is placed between two queries is in both.
        return tuple({entry.job_id: entry for entry in readable(_entry, items, unreadable)}.values())

    def load_ray_queue(self, unreadable: list[Exception] | None = None) -> tuple[Entry, ...]:
        """Return the queue entries of all jobs on Ray that wait for GPUs or hold some. An entry may be outdated.

        A job that an older release wrote has no entry in the index. It counts from its next write.
        """
        items = self.jobs.query("line", "#l = :l", {"#l": "line"}, {":l": ON_RAY})
        return tuple(readable(_entry, (item for item in items if "line_entry" in item), unreadable))

    def load_last_pass(self) -> LastPass:
        """Return the record of the scheduler's last pass, consistently read."""
        item = self.jobs.get(SCHEDULER)
        if item is None:
            return LastPass()
        at, next_at, since = item.get("at"), item.get("next_at"), item.get("leaves_places_since")
        return LastPass(
            int(item["term"]),
            from_iso(at) if at else None,
            from_iso(next_at) if next_at else None,
            int(item.get("waiting", 0)),
            from_iso(since) if since else None,
        )

    def add_changed_instance(self, instance_id: str, now: datetime) -> bool:
        """Add the instance to those that the next pass reads. Return whether a message must wake the scheduler.

        One conditional update. The first instance after a pass sets the time at which its message is sent. A second
        update replaces a time of which the message is overdue, so that one of several functions sends another.
        """
        at = to_iso(now)
        change = "SET sent_at = if_not_exists(sent_at, :at) ADD changed :ids"
        room = "attribute_not_exists(changed) OR size(changed) < :most"
        values = {":at": at, ":ids": {instance_id}, ":most": CHANGED_MAX}
        after, stored = self.jobs.try_update(CHANGED, change, room, {}, values)
        item = after or stored or {}
        if after is not None and after["sent_at"] == at and len(after["changed"]) == 1:
            return True
        sent_at = item["sent_at"]
        if from_iso(sent_at) > now - WAKE_OVERDUE:
            return False
        again = {":at": at, ":sent": sent_at}
        return self.jobs.update(CHANGED, "SET sent_at = :at", "sent_at = :sent", {}, again) is not None

    def take_changed_instances(self) -> Collection[str]:
        """Return the changed instances and forget them, so that the next change wakes the scheduler again.

        If an instance was added between the read and the write, both are repeated. The last write has no condition. It
        may forget an instance without naming it, but the change of that instance was saved before the pass reads.
        """
        names: Collection[str] = ()
        for tries_left in reversed(range(TAKES_MAX)):
            names = (self.jobs.get(CHANGED) or {}).get("changed", ())
            same = "size(changed) >= :count" if not tries_left else "size(changed) = :count"
            change = "REMOVE changed, sent_at"
            if not names or self.jobs.update(CHANGED, change, same, {}, {":count": len(names)}) is not None:
                break
        return names

    def begin_term(self) -> int:
        """Begin a new term of the scheduler and return its number.

        The time of the last pass is removed until this pass is saved. If the function dies before, the next tick finds
        no time and begins another pass.
        """
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

    def recent_placements(self, term: int, since: datetime) -> Collection[str]:
        """Return the ids of the jobs whose placement was remembered at `since` or later, consistently read.

        Older placements are removed. Only a placement in `term` can be added meanwhile.
        """
        item = self.jobs.get(SCHEDULER) or {}
        times = {name: from_iso(at) for name, at in item.items() if name.startswith(PLACEMENT)}
        old = [name for name, at in times.items() if at < since]
        if old:
            names = {f"#p{number}": name for number, name in enumerate(old[:REMOVED_MAX])}
            self.jobs.update(SCHEDULER, f"REMOVE {', '.join(names)}", "term = :term", names, {":term": term})
        return tuple(name.removeprefix(PLACEMENT) for name in times if name not in old)

    def save_pass(self, ended: LastPass) -> None:
        """Save the pass that has ended, unless another term has begun since."""
        values = {":at": encode(ended.at), ":next": encode(ended.next_at), ":left": ended.waiting, ":term": ended.term}
        change = "SET #at = :at, next_at = :next, waiting = :left"
        if ended.leaves_places_since is None:
            change += " REMOVE leaves_places_since"
        else:
            change += ", leaves_places_since = :since"
            values[":since"] = encode(ended.leaves_places_since)
        self.jobs.update(SCHEDULER, change, "term = :term", {"#at": "at"}, values)

    def quota_used(self, keys: Iterable[str]) -> Mapping[str, int]:
        """Return the number of instances in use by quota key, consistently read; 0 if none is stored."""
        wanted = {QUOTA + key: key for key in keys}
        items = self.jobs.get_all(list(wanted))
        return {key: int(items[name]["used"]) if name in items else 0 for name, key in wanted.items()}

    def load_run_times(self, kinds: Iterable[str]) -> Mapping[str, tuple[int, ...]]:
        """Return the run times, in seconds, of the latest jobs of each kind."""
        wanted = {RUN_TIMES + kind: kind for kind in kinds}
        items = self.jobs.get_all(list(wanted))
        return {
            kind: tuple(int(value) for slot, value in sorted(items.get(name, {}).items()) if slot.startswith(SLOT))
            for name, kind in wanted.items()
        }

    def load_limits(self) -> tuple[Mapping[str, Any], int]:
        """Return the document of quota limits and its revision; ({}, 0) if there is none."""
        item = self.jobs.get(LIMITS)
        return (json.loads(item["document"]), int(item["revision"])) if item else ({}, 0)

    def save_limits(self, document: Mapping[str, Any], revision: int) -> int:
        """Save the document of quota limits and return its new revision. Raises StaleRecord."""
        item = {"job_id_rank": LIMITS, "document": json.dumps(document), "revision": revision + 1}
        condition = "revision = :read" if revision else "attribute_not_exists(job_id_rank)"
        if not self.jobs.put(item, condition, {":read": revision} if revision else {}):
            raise StaleRecord(f"the limits were written since revision {revision}")
        return revision + 1

    def put_job(self, put: Put, job_id: str, quota: QuotaChange | None) -> None:
        """Write a job's item and the change of its user's quota count, both or neither.

        Args:
            put: the conditional write of the item.
            job_id: the job.
            quota: the change of the quota count; None if there is none.

        Raises:
            StaleRecord: the condition of `put` failed, or another write conflicted.
            TermOver: the term of `quota` is over.
        """
        if quota is None:
            if not self.jobs.put(put.item, put.condition, put.values):
                raise StaleRecord(f"job {job_id} was written since")
            return
        actions: list[dict[str, Any]] = [{"Put": {"TableName": self.jobs.name, **put.request()}}]
        if quota.term is not None:
            actions.append(_in_term(self.jobs.name, quota.term, job_id, quota.placed_at))
        if quota.nodes:
            actions.append(_counted(self.jobs.name, quota))
        if quota.ran is not None:
            actions.append(_ran(self.jobs.name, quota.ran))
        refused = self.jobs.transact(actions)
        if refused.get(1) == "ConditionalCheckFailed" and quota.term is not None:
            raise TermOver(f"the scheduler's term {quota.term} is over: another has begun")
        if refused:
            raise StaleRecord(f"job {job_id} was written since")


def _in_term(table: str, term: int, job_id: str, placed_at: datetime | None) -> dict[str, Any]:
    """Return the condition that the term is not over; with `placed_at` the write that remembers the placement."""
    condition = {
        "TableName": table,
        "Key": typed({"job_id_rank": SCHEDULER}),
        "ConditionExpression": "term = :term",
    }
    if placed_at is None:
        return {"ConditionCheck": {**condition, "ExpressionAttributeValues": typed({":term": term})}}
    return {
        "Update": {
            **condition,
            "UpdateExpression": "SET #placement = :at",
            "ExpressionAttributeNames": {"#placement": PLACEMENT + job_id},
            "ExpressionAttributeValues": typed({":term": term, ":at": encode(placed_at)}),
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
