"""Job records in the job table (`ecs-job-sub`): an item for each job, and an item for its submitted text."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from gpu_recovery.aws.dynamodb import Put
from gpu_recovery.aws.item_codec import decode, field_names, from_iso, item_of, readable, reading
from gpu_recovery.aws.jobs_by_time import all_places, cursor_at, place_of
from gpu_recovery.aws.pending_commands import RecordTable, commands_list, commands_map, due_keys
from gpu_recovery.aws.queue_store import ON_RAY, DynamoQueueStore, queue_keys
from gpu_recovery.core.job.record import Job, JobStatus, ListedJob
from gpu_recovery.core.job.status import LISTED_STATUSES
from gpu_recovery.core.ray.placement import is_in_the_pool
from gpu_recovery.core.state_machine import QuotaChange, next_deadline
from gpu_recovery.ports.errors import CursorInvalid
from gpu_recovery.ports.values import JobPage, JobQuery

KEY_BYTES_MAX = 2_048
"""Upper bound in bytes of a partition key in DynamoDB."""


class DynamoJobStore(DynamoQueueStore):
    """The jobs of the store; see `ports.store.JobStore` for the contract of each method."""

    jobs: RecordTable

    def __init__(self, client: Any, table_name: str) -> None:
        self.jobs = RecordTable(client, table_name, "job_id_rank")

    def create_job(self, job: Job, submitted: str) -> bool:
        """Save a new job and its submitted text. Return False, and change nothing, if the job id is taken."""
        if not self.jobs.put(job_item(replace(job, revision=1)), "attribute_not_exists(job_id_rank)"):
            return False
        if submitted:
            self.jobs.put(
                {"job_id_rank": f"{job.job_id}#spec", "submitted": submitted}, "attribute_not_exists(job_id_rank)"
            )
        return True

    def load_job(self, job_id: str) -> Job | None:
        """Return the record of a job, consistently read; None if there is none."""
        item = self.jobs.get(job_id)
        return _job(item) if item is not None and "status" in item else None

    def load_submitted(self, job_id: str) -> str | None:
        """Return the text that the job was submitted with; None if none is stored."""
        item = self.jobs.get(f"{job_id}#spec")
        return None if item is None else str(item["submitted"])

    def save_job(self, job: Job, quota: QuotaChange | None = None) -> Job:
        """Save the job, and a change of its user's quota count in the same transaction. Return the job as it is stored.

        Raises:
            StaleRecord: another writer saved the job since its revision.
            TermOver: `quota` was decided in a term of the scheduler that is over.
        """
        saved = replace(job, revision=job.revision + 1)
        # Every write increases `revision`, also the removal of finished commands. So a writer with an older record is
        # refused and cannot restore a removed command.
        self.put_job(Put(job_item(saved), "revision = :read", {":read": job.revision}), job.job_id, quota)
        return saved

    def remove_finished_job_commands(self, job: Job, done: Sequence[str], deferred: Mapping[str, datetime]) -> None:
        """Remove finished commands from the stored job and put deferred commands off."""
        self.jobs.remove_finished(job.job_id, job, done, deferred)

    def jobs_in(
        self, statuses: Sequence[JobStatus], limit: int, unreadable: list[Exception] | None = None
    ) -> tuple[Job, ...]:
        """Return at most `limit` jobs of each status, the longest queued first, consistently read."""
        # A job that changes its status between two queries is in both results, and DynamoDB refuses a repeated key.
        ids = list(dict.fromkeys(item["job_id_rank"] for status in statuses for item in self._queued(status, limit)))
        items = self.jobs.get_all(ids)
        jobs = readable(_job, (items[job_id] for job_id in ids if job_id in items), unreadable)
        return tuple(job for job in jobs if job.status in statuses)

    def jobs_on_ray(self, unreadable: list[Exception] | None = None) -> tuple[Job, ...]:
        """Return every job on Ray that waits for GPUs or holds some, consistently read."""
        entries = self.jobs.query("line", "#l = :l", {"#l": "line"}, {":l": ON_RAY})
        items = self.jobs.get_all(list(dict.fromkeys(entry["job_id_rank"] for entry in entries)))
        return tuple(job for job in readable(_job, items.values(), unreadable) if is_in_the_pool(job))

    def list_jobs(
        self, status: JobStatus | None, limit: int, cursor: str | None, unreadable: list[Exception] | None = None
    ) -> JobPage:
        """Return a page of at most `limit` jobs.

        Args:
            status: the status of the jobs; None for all jobs, in the order of LISTED_STATUSES.
            limit: upper bound of jobs in the page.
            cursor: the `cursor` of the page before; None for the first page.
            unreadable: collects the errors of records that cannot be read.

        Raises:
            CursorInvalid: the cursor does not come from this store, or belongs to another listing.
        """
        statuses = (status,) if status else LISTED_STATUSES
        at, start = _read_cursor(cursor) if cursor else (statuses[0], None)
        if at not in statuses:
            raise CursorInvalid("the cursor belongs to another listing")
        ids: list[str] = []
        last: Mapping[str, Any] | None = None
        for current in statuses[statuses.index(at) :]:
            for item in self._queued(current, limit - len(ids), start):
                ids.append(item["job_id_rank"])
                last = {"status": current.value, "queued_at": item["queued_at"], "job_id_rank": item["job_id_rank"]}
            start = None
            if len(ids) >= limit:
                break
        unique = list(dict.fromkeys(ids))
        items = self.jobs.get_all(unique, _listed_attributes())
        read = readable(_listed_job, (items[job_id] for job_id in unique if job_id in items), unreadable)
        # A job may have left the status since the query, and the index may lag.
        jobs = tuple(job for job in read if status is None or job.status is status)
        return JobPage(jobs, _cursor(last) if last and len(ids) >= limit else None)

    def list_jobs_by_time(
        self, query: JobQuery, limit: int, cursor: str | None, unreadable: list[Exception] | None = None
    ) -> JobPage:
        """Return a page of at most `limit` jobs in the order of their submission. At most 2,000 entries are looked at.

        Raises:
            CursorInvalid: the cursor does not come from this method.
        """
        places, end = all_places(self.jobs, query, limit, place_of(cursor) if cursor else None)
        ids = list(dict.fromkeys(job_id for _, job_id in places))
        items = self.jobs.get_all(ids, _listed_attributes())
        jobs = readable(_listed_job, (items[job_id] for job_id in ids if job_id in items), unreadable)
        # A job may have left the status since the query, and the index may lag.
        return JobPage(
            tuple(job for job in jobs if job.status in query.statuses), None if end is None else cursor_at(end)
        )

    def due_jobs(self, now: datetime) -> Iterable[str]:
        """Return the ids of jobs with a deadline, a poll time or an end of a command lease at or before `now`."""
        return self.jobs.due(now)

    def _queued(
        self, status: JobStatus, limit: int, start: Mapping[str, Any] | None = None
    ) -> Iterable[dict[str, Any]]:
        return self.jobs.query("by_status", "#s = :s", {"#s": "status"}, {":s": status.value}, limit, start)


def job_item(job: Job) -> dict[str, Any]:
    """Return the item of a job, with its key and its index entries, as plain values."""
    item = item_of(job)
    item["commands"] = commands_map(job.commands)
    due = due_keys(job.job_id, next_deadline(job), job.look_at, job.commands)
    return {**item, "job_id_rank": job.job_id, **due, **queue_keys(job)}


def _listed_attributes() -> tuple[str, ...]:
    """Return the attributes of a job that a list reads: all but its commands and its history."""
    return ("job_id_rank", "schema", *field_names(ListedJob))


def _listed_job(item: Mapping[str, Any]) -> ListedJob:
    with reading(f"job {item['job_id_rank']}", item):
        job: ListedJob = decode(ListedJob, item)
        return job


def _job(item: Mapping[str, Any]) -> Job:
    with reading(f"job {item['job_id_rank']}", item, "commands"):
        job: Job = decode(Job, {**item, "commands": []})
        return replace(job, commands=commands_list(item["commands"]))


def _cursor(last: Mapping[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(last).encode()).decode()


def _read_cursor(cursor: str) -> tuple[JobStatus, Mapping[str, Any]]:
    try:
        last = json.loads(base64.urlsafe_b64decode(cursor.encode()))
        keys = {key: str(last[key]) for key in ("status", "queued_at", "job_id_rank")}
        from_iso(keys["queued_at"])
        if not 1 <= len(keys["job_id_rank"].encode()) <= KEY_BYTES_MAX:
            raise ValueError("a place that no job can have")
        return JobStatus(keys["status"]), keys
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError) as error:
        raise CursorInvalid("the cursor was not handed out by this service") from error
