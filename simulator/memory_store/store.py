"""The store in memory: `ports.Store` with the answers that DynamoDB gives, for one thread.

`tests/aws` runs the same tests over both and feeds both the same random operations. What DynamoDB does by conditions
is done here by comparing first: nothing comes between two lines of this file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain
from typing import Any, Generic, TypeVar

from gpu_recovery.core.attempt import AttemptProgress, Plan
from gpu_recovery.core.events import Checked
from gpu_recovery.core.fleet import Fleet
from gpu_recovery.core.instance.fault_history import signal_at
from gpu_recovery.core.instance.lemons import LemonSignal
from gpu_recovery.core.instance.record import Claim, EcsStatus, Instance, InstanceStatus
from gpu_recovery.core.job.record import Job, JobStatus
from gpu_recovery.core.state_machine import PendingCommand, QuotaChange, due_at, replace_fields
from gpu_recovery.core.task import RankFailure
from gpu_recovery.ports.errors import CursorInvalid, StaleRecord
from gpu_recovery.ports.values import LISTED_STATUSES, JobPage, ProgressUpdate

from simulator.memory_store.heartbeats import MemoryHeartbeats
from simulator.memory_store.observations import MemoryObservations
from simulator.memory_store.queue import MemoryQueue

Record = TypeVar("Record", Job, Instance)


@dataclass
class MemoryTable(Generic[Record]):
    """Records of one kind by id, and when each is due.

    The due time is kept apart because, as in the table, only a write that knows the whole record moves it.
    """

    records: dict[str, Record] = field(default_factory=dict)
    due: dict[str, datetime] = field(default_factory=dict)
    listeners: tuple[dict[str, None], ...] = ()
    """Each gets the names of the records that are written, and empties itself."""

    def save(self, name: str, record: Record) -> Record:
        """Write the whole record with its next revision. StaleRecord if somebody wrote it since it was read."""
        stored = self.records.get(name)
        if (stored.revision if stored else 0) != record.revision:
            raise StaleRecord(f"{name} was written since revision {record.revision}")
        kept = replace_fields(record, {"revision": record.revision + 1, "commands": in_order(record.commands)})
        self.records[name] = kept
        for news in self.listeners:
            news[name] = None
        self._due(name, kept)
        return kept

    def change(self, name: str, record: Record, **fields: Any) -> Record:
        """Write fields that no decision is made of; whoever has read the record is refused all the same."""
        for news in self.listeners:
            news[name] = None
        self.records[name] = changed = replace_fields(record, {**fields, "revision": record.revision + 1})
        return changed

    def remove_finished(self, name: str, read: Record, done: Sequence[str], deferred: Mapping[str, datetime]) -> None:
        """Take `done` out of the record and put `deferred` off. Only an unchanged record also gets its due time."""
        stored = self.records.get(name)
        present = {one.command_id for one in stored.commands} if stored else set()
        if stored is None or (deferred and not done and not present & deferred.keys()):
            return
        left = tuple(
            replace(one, acting_until=deferred[one.command_id], refusals=one.refusals + 1)
            if one.command_id in deferred
            else one
            for one in stored.commands
            if one.command_id not in done
        )
        settled = self.change(name, stored, commands=left)
        if stored.revision == read.revision:
            self._due(name, settled)

    def overdue(self, now: datetime) -> list[str]:
        """The names of records whose time has come, the longest overdue first."""
        return sorted((name for name, at in self.due.items() if at <= now), key=lambda name: (self.due[name], name))

    def next_due(self) -> datetime | None:
        """When the first record is due; None if none ever is."""
        return min(self.due.values(), default=None)

    def _due(self, name: str, record: Record) -> None:
        self.due.pop(name, None)
        if at := due_at(record.deadline_at, record.look_at, record.commands):
            self.due[name] = at


def in_order(commands: Sequence[PendingCommand]) -> tuple[PendingCommand, ...]:
    """Pending commands in the order they were given: by record version, then number."""
    if len(commands) < 2:
        return tuple(commands)
    return tuple(sorted(commands, key=lambda one: tuple(int(n) for n in one.command_id.split("/")[-2:])))


class MemoryStore(MemoryHeartbeats, MemoryQueue, MemoryObservations):
    """See `ports.Store` for what each function promises."""

    def __init__(self) -> None:
        MemoryHeartbeats.__init__(self)
        MemoryQueue.__init__(self)
        MemoryObservations.__init__(self)
        self.jobs: MemoryTable[Job] = MemoryTable()
        self.machines: MemoryTable[Instance] = MemoryTable()
        self.submitted: dict[str, str] = {}
        self.plans: dict[tuple[str, int], Plan] = {}
        self.progress: dict[tuple[str, int], AttemptProgress] = {}
        self.registered: dict[str, str] = {}
        self.fleet = Fleet()
        self.attempts_kept: int | None = None
        """How many attempts of a job keep their plan and progress; None: all."""

    def load_submitted(self, job_id: str) -> str | None:
        return self.submitted.get(job_id)

    def create_job(self, job: Job, submitted: str) -> bool:
        if job.job_id in self.jobs.records:
            return False
        self.jobs.save(job.job_id, replace(job, revision=0))
        if submitted:
            self.submitted[job.job_id] = submitted
        return True

    def load_job(self, job_id: str) -> Job | None:
        return self.jobs.records.get(job_id)

    def save_job(self, job: Job, quota: QuotaChange | None = None) -> Job:
        if job.job_id not in self.jobs.records:
            raise StaleRecord(f"there is no job {job.job_id}")
        self.check_term(quota)
        saved = self.jobs.save(job.job_id, job)
        self.count(quota)
        return saved

    def remove_finished_job_commands(self, job: Job, done: Sequence[str], deferred: Mapping[str, datetime]) -> None:
        self.jobs.remove_finished(job.job_id, job, done, deferred)

    def jobs_in(
        self, statuses: Sequence[JobStatus], limit: int, unreadable: list[Exception] | None = None
    ) -> tuple[Job, ...]:
        queued = self._queued(statuses)
        return tuple(job for status in statuses for job in queued[status][:limit])

    def list_jobs(
        self, status: JobStatus | None, limit: int, cursor: str | None, unreadable: list[Exception] | None = None
    ) -> JobPage:
        statuses = (status,) if status else LISTED_STATUSES
        at, after = _read_cursor(cursor) if cursor else (statuses[0], None)
        if at not in statuses:
            raise CursorInvalid("the cursor belongs to another listing")
        queued = self._queued(statuses[statuses.index(at) :])
        listed = ((status, job) for status, jobs in queued.items() for job in jobs)
        found = [(s, job) for s, job in listed if after is None or s is not at or _place(job) > after][:limit]
        return JobPage(tuple(job for _, job in found), _cursor(*found[-1]) if len(found) >= limit else None)

    def due_jobs(self, now: datetime) -> Iterable[str]:
        return self.jobs.overdue(now)

    def _queued(self, statuses: Sequence[JobStatus]) -> dict[JobStatus, list[Job]]:
        """The jobs of each of `statuses`, in the order given, as they stand in line."""
        found: dict[JobStatus, list[Job]] = {status: [] for status in statuses}
        for job in self.jobs.records.values():
            if job.status in found:
                found[job.status].append(job)
        for jobs in found.values():
            if len(jobs) > 1:
                jobs.sort(key=_place)
        return found

    def begin_attempt(self, plan: Plan) -> Plan:
        key = (plan.job_id, plan.attempt)
        if self.attempts_kept is not None:
            old = (plan.job_id, plan.attempt - self.attempts_kept)
            self.plans.pop(old, None)
            self.progress.pop(old, None)
        self.progress.setdefault(key, AttemptProgress(*key, world=len(plan.instances)))
        return self.plans.setdefault(key, plan)

    def load_plan(self, job_id: str, attempt: int) -> Plan | None:
        return self.plans.get((job_id, attempt))

    def load_progress(self, job_id: str, attempt: int) -> AttemptProgress | None:
        return self.progress.get((job_id, attempt))

    def record_task(self, plan: Plan, rank: int, instance_id: str, task_id: str) -> None:
        kept = self.load_plan(plan.job_id, plan.attempt)
        if kept is not None:
            instances, task_ids = _with(kept.instances, rank, instance_id), _with(kept.task_ids, rank, task_id)
            self.plans[plan.job_id, plan.attempt] = replace(kept, instances=instances, task_ids=task_ids)

    def record_tasks(self, plan: Plan) -> None:
        kept = self.load_plan(plan.job_id, plan.attempt)
        if kept is not None:
            self.plans[plan.job_id, plan.attempt] = replace(kept, task_ids=plan.task_ids)

    def add_running(self, job_id: str, attempt: int, rank: int) -> ProgressUpdate | None:
        known = self.load_progress(job_id, attempt)
        if known is None or rank >= known.world:
            return None
        if rank in known.running or rank in known.stopped:
            return None
        return ProgressUpdate(self._progressed(replace(known, running=known.running | {rank})))

    def add_stopped(self, job_id: str, attempt: int, rank: int, failure: RankFailure | None) -> ProgressUpdate | None:
        known = self.load_progress(job_id, attempt)
        if known is None or rank >= known.world or rank in known.stopped:
            return None
        first = failure is not None and known.failure is None
        own_ends = known.own_ends + (failure is not None and failure.ending.is_own)
        failed = failure if first else known.failure
        after = replace(known, stopped=known.stopped | {rank}, failure=failed, own_ends=own_ends)
        return ProgressUpdate(self._progressed(after), first)

    def add_checked(self, job_id: str, attempt: int, rank: int, result: Checked) -> ProgressUpdate | None:
        known = self.load_progress(job_id, attempt)
        if known is None or rank in known.checked:
            return None
        return ProgressUpdate(self._progressed(replace(known, checked={**known.checked, rank: result})))

    def _progressed(self, after: AttemptProgress) -> AttemptProgress:
        self.progress[after.job_id, after.attempt] = after
        return after

    def load_instance(self, instance_id: str) -> Instance | None:
        return self.machines.records.get(instance_id)

    def load_instances(self, instance_ids: Sequence[str]) -> Mapping[str, Instance]:
        return {one: self.machines.records[one] for one in instance_ids if one in self.machines.records}

    def save_instance(self, instance: Instance, fleet: Fleet | None = None) -> Instance:
        if fleet is not None:
            self._check_fleet(fleet)
        saved = self.machines.save(instance.instance_id, instance)
        if fleet is not None:
            self.save_fleet(fleet)
        return saved

    def load_fleet(self) -> Fleet:
        return self.fleet

    def save_fleet(self, fleet: Fleet) -> Fleet:
        self._check_fleet(fleet)
        self.fleet = replace(fleet, revision=fleet.revision + 1)
        return self.fleet

    def _check_fleet(self, fleet: Fleet) -> None:
        if fleet.revision != self.fleet.revision:
            raise StaleRecord(f"the fleet's brakes were written since revision {fleet.revision}")

    def remember_registration(self, instance: Instance) -> None:
        self.registered.setdefault(instance.container_instance_id, instance.instance_id)

    def remove_finished_instance_commands(
        self, instance: Instance, done: Sequence[str], deferred: Mapping[str, datetime]
    ) -> None:
        self.machines.remove_finished(instance.instance_id, instance, done, deferred)

    def claim_instance(self, instance_id: str, job_id: str, claim: Claim, epoch: int | None) -> bool:
        instance = self.load_instance(instance_id)
        if instance is None or (epoch is not None and not _may_claim(instance, job_id, claim, epoch)):
            return False
        if epoch is not None and instance.claims.get(job_id) == claim:
            return True  # an earlier try was heard: nothing is written again
        claims = {**instance.claims, job_id: claim}
        self.machines.change(instance_id, instance, claims=claims, reserved_for="")
        return True

    def release_instance(
        self,
        instance_id: str,
        job_id: str,
        keep_claim: bool,
        attempt: int | None = None,
        left_out_at: datetime | None = None,
    ) -> None:
        instance = self.load_instance(instance_id)
        claim = instance.claims.get(job_id) if instance is not None and not keep_claim else None
        if instance is not None and claim is not None and (attempt is None or claim.attempt <= attempt):
            left = {job: claim for job, claim in instance.claims.items() if job != job_id}
            past = instance.past
            if left_out_at is not None:
                past = (*past, signal_at(left_out_at, LemonSignal.LEFT_OUT))
            instance = self.machines.change(instance_id, instance, claims=left, past=past)
        if instance is not None and instance.reserved_for == job_id:
            self.machines.change(instance_id, instance, reserved_for="")

    def instances_in(
        self, statuses: Sequence[InstanceStatus], unreadable: list[Exception] | None = None
    ) -> tuple[Instance, ...]:
        found: dict[InstanceStatus, list[Instance]] = {status: [] for status in statuses}
        for name in sorted(self.machines.records):
            instance = self.machines.records[name]
            if instance.status in found:
                found[instance.status].append(instance)
        return tuple(chain.from_iterable(found[status] for status in statuses))

    def instance_of(self, container_instance_id: str) -> str | None:
        return self.registered.get(container_instance_id)

    def next_due(self) -> datetime | None:
        """When the first job or instance is due; None if none ever is."""
        known = (at for at in (self.jobs.next_due(), self.machines.next_due()) if at is not None)
        return min(known, default=None)

    def due_instances(self, now: datetime) -> Iterable[str]:
        return self.machines.overdue(now)


def _may_claim(instance: Instance, job_id: str, claim: Claim, epoch: int) -> bool:
    mine = instance.claims.get(job_id)
    return (
        instance.status is InstanceStatus.AVAILABLE
        and instance.ecs_status == EcsStatus.ACTIVE
        and instance.epoch == epoch
        and instance.reserved_for in ("", job_id)
        and (instance.gpus_unclaimed >= claim.gpus if mine is None else mine == claim)
    )


def _with(values: tuple[str, ...], rank: int, value: str) -> tuple[str, ...]:
    return tuple(value if n == rank else one for n, one in enumerate(values))


def _place(job: Job) -> tuple[datetime, str]:
    return job.queued_at, job.job_id


def _cursor(status: JobStatus, job: Job) -> str:
    return json.dumps([status, job.queued_at.isoformat(), job.job_id])


def _read_cursor(cursor: str) -> tuple[JobStatus, tuple[datetime, str]]:
    try:
        status, queued_at, job_id = json.loads(cursor)
        return JobStatus(status), (datetime.fromisoformat(queued_at), str(job_id))
    except (ValueError, TypeError) as error:
        raise CursorInvalid("the cursor was not handed out by this service") from error
