"""The store in memory: `ports.store.Store` with the results that DynamoDB gives, for one thread.

`tests/aws` runs the same tests over both stores and feeds both the same random operations. A conditional write of
DynamoDB is a comparison and a write here: no other write comes between the two.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import chain

from gpu_recovery.core.fleet import Fleet
from gpu_recovery.core.instance.fault_history import signal_at
from gpu_recovery.core.instance.lemons import LemonSignal
from gpu_recovery.core.instance.record import Claim, EcsStatus, Instance, InstanceStatus, ListedInstance
from gpu_recovery.core.job.record import Job, JobStatus, ListedJob
from gpu_recovery.core.job.status import LISTED_STATUSES
from gpu_recovery.core.state_machine import QuotaChange
from gpu_recovery.ports.errors import CursorInvalid, StaleRecord
from gpu_recovery.ports.values import InstancePage, JobPage, JobQuery, RefusedCheck, StartedCheck

from simulator.memory_store.attempts import MemoryAttempts
from simulator.memory_store.heartbeats import MemoryHeartbeats
from simulator.memory_store.limits import check_key
from simulator.memory_store.observations import MemoryObservations
from simulator.memory_store.queue import MemoryQueue
from simulator.memory_store.table import MemoryTable


class MemoryStore(MemoryAttempts, MemoryHeartbeats, MemoryQueue, MemoryObservations):
    """Implements `ports.store.Store`; its protocols document arguments, results and errors."""

    def __init__(self) -> None:
        MemoryAttempts.__init__(self)
        MemoryHeartbeats.__init__(self)
        MemoryQueue.__init__(self)
        MemoryObservations.__init__(self)
        self.jobs: MemoryTable[Job] = MemoryTable()
        self.machines: MemoryTable[Instance] = MemoryTable()
        self.submitted: dict[str, str] = {}
        self.registered: dict[str, str] = {}
        self.fleet = Fleet()
        self.notified: dict[str, datetime] = {}
        self.agent_tasks: dict[str, tuple[str, datetime]] = {}

    def load_submitted(self, job_id: str) -> str | None:
        """Return the text that the job was submitted with, or None."""
        return self.submitted.get(job_id)

    def create_job(self, job: Job, submitted: str) -> bool:
        """Save a new job and its submitted text. Return False, and change nothing, if the job id is taken."""
        if job.job_id in self.jobs.records:
            return False
        self.jobs.save(job.job_id, replace(job, revision=0))
        if submitted:
            self.submitted[job.job_id] = submitted
        return True

    def load_job(self, job_id: str) -> Job | None:
        """Return the record of a job, or None."""
        if not job_id:
            check_key(job_id)
        return self.jobs.records.get(job_id)

    def save_job(self, job: Job, quota: QuotaChange | None = None) -> Job:
        """Save `job` and its quota change if the stored revision is still `job.revision`."""
        if job.job_id not in self.jobs.records:
            raise StaleRecord(f"there is no job {job.job_id}")
        self.check_term(quota)
        saved = self.jobs.save(job.job_id, job)
        self.count(quota)
        self.remember_placement(job.job_id, quota)
        return saved

    def remove_finished_job_commands(self, job: Job, done: Sequence[str], deferred: Mapping[str, datetime]) -> None:
        """Remove finished commands from the stored job and put deferred commands off."""
        self.jobs.remove_finished(job.job_id, job, done, deferred)

    def jobs_in(
        self, statuses: Sequence[JobStatus], limit: int, unreadable: list[Exception] | None = None
    ) -> tuple[Job, ...]:
        """Return at most `limit` jobs of each status, the longest queued first."""
        queued = self._queued(statuses)
        return tuple(job for status in statuses for job in queued[status][:limit])

    def list_jobs(
        self, status: JobStatus | None, limit: int, cursor: str | None, unreadable: list[Exception] | None = None
    ) -> JobPage:
        """Return a page of at most `limit` jobs."""
        statuses = (status,) if status else LISTED_STATUSES
        first_status, after = _read_cursor(cursor) if cursor else (statuses[0], None)
        if first_status not in statuses:
            raise CursorInvalid("the cursor belongs to another listing")
        queued = self._queued(statuses[statuses.index(first_status) :])
        listed = ((status, job) for status, jobs in queued.items() for job in jobs)
        page = [
            (job_status, job)
            for job_status, job in listed
            if after is None or job_status is not first_status or _queue_position(job) > after
        ][:limit]
        return JobPage(
            tuple(self.jobs.part_of(job.job_id, ListedJob) for _, job in page),
            _cursor(*page[-1]) if len(page) >= limit else None,
        )

    def list_jobs_by_time(
        self, query: JobQuery, limit: int, cursor: str | None, unreadable: list[Exception] | None = None
    ) -> JobPage:
        """Return a page of at most `limit` jobs in the order of their submission."""
        after = _read_position(cursor) if cursor else None
        listed = sorted(chain(*self._queued(query.statuses).values()), key=_queue_position, reverse=query.newest)
        if after is not None:
            listed = [
                job
                for job in listed
                if _queue_position(job) != after and (_queue_position(job) < after) is query.newest
            ]
        page = [
            job
            for job in listed
            if job.job_id.startswith(query.prefix)
            and (query.since is None or job.queued_at >= query.since)
            and query.user in (None, job.spec.user)
            and query.group in (None, job.spec.group)
            and query.name in (None, job.spec.name)
        ][:limit]
        last = json.dumps([page[-1].queued_at.isoformat(), page[-1].job_id]) if len(page) >= limit else None
        return JobPage(tuple(self.jobs.part_of(job.job_id, ListedJob) for job in page), last)

    def due_jobs(self, now: datetime) -> Iterable[str]:
        """Return the ids of the jobs that are due at `now`."""
        return self.jobs.overdue(now)

    def _queued(self, statuses: Sequence[JobStatus]) -> dict[JobStatus, list[Job]]:
        """Return the jobs of each of `statuses`, in the order given, the longest queued first."""
        by_status: dict[JobStatus, list[Job]] = {status: [] for status in statuses}
        for job in self.jobs.records.values():
            if job.status in by_status:
                by_status[job.status].append(job)
        for jobs in by_status.values():
            if len(jobs) > 1:
                jobs.sort(key=_queue_position)
        return by_status

    def load_instance(self, instance_id: str) -> Instance | None:
        """Return the record of an instance, or None."""
        if not instance_id:
            check_key(instance_id)
        return self.machines.records.get(instance_id)

    def load_instances(self, instance_ids: Sequence[str]) -> Mapping[str, Instance]:
        """Return the records of these instances by id; missing records are left out."""
        if "" in instance_ids:
            check_key("")
        return {
            instance_id: self.machines.records[instance_id]
            for instance_id in instance_ids
            if instance_id in self.machines.records
        }

    def save_instance(self, instance: Instance, fleet: Fleet | None = None) -> Instance:
        """Save `instance` and, if it is given, the fleet record: both or neither."""
        if fleet is not None:
            self._check_fleet(fleet)
        saved = self.machines.save(instance.instance_id, instance)
        if fleet is not None:
            self.save_fleet(fleet)
        return saved

    def load_fleet(self) -> Fleet:
        """Return the fleet record."""
        return self.fleet

    def save_fleet(self, fleet: Fleet) -> Fleet:
        """Save `fleet` if the stored revision is still `fleet.revision`; return it with its new revision."""
        self._check_fleet(fleet)
        self.fleet = replace(fleet, revision=fleet.revision + 1)
        return self.fleet

    def _check_fleet(self, fleet: Fleet) -> None:
        if fleet.revision != self.fleet.revision:
            raise StaleRecord(f"the fleet limits were written since revision {fleet.revision}")

    def remember_registration(self, instance: Instance) -> None:
        """Store the present container instance id of the instance."""
        self.registered.setdefault(instance.container_instance_id, instance.instance_id)

    def remove_finished_instance_commands(
        self,
        instance: Instance,
        done: Sequence[str],
        deferred: Mapping[str, datetime],
        check_request: StartedCheck | RefusedCheck | None = None,
    ) -> None:
        """Remove finished commands from the stored instance, defer others, and record the answer about a check."""
        stored = self.load_instance(instance.instance_id)
        run = stored.check if stored is not None else None
        fields = {}
        if check_request is not None and run is not None and run.check_id == check_request.check_id:
            fields["check"] = (
                replace(run, task_id=check_request.task_id)
                if isinstance(check_request, StartedCheck)
                else replace(run, refusal=check_request.refusal)
            )
        self.machines.remove_finished(instance.instance_id, instance, done, deferred, **fields)

    def claim_instance(self, instance_id: str, job_id: str, claim: Claim, epoch: int | None, replaces: int = 0) -> bool:
        """Add the claim of an attempt to an instance; return False if the claim is refused."""
        instance = self.load_instance(instance_id)
        if instance is not None and replaces and epoch is not None:
            before = instance.claims.get(job_id)
            if before is not None and (before.attempt, before.gpus) == (replaces, claim.gpus):
                others = {job: other for job, other in instance.claims.items() if job != job_id}
                if not _may_claim(replace(instance, claims=others), job_id, claim, epoch):
                    return False
                self.machines.change(instance_id, instance, claims={**instance.claims, job_id: claim}, reserved_for="")
                return True
        if instance is None or (epoch is not None and not _may_claim(instance, job_id, claim, epoch)):
            return False
        if instance.claims.get(job_id) == claim:
            return True  # an earlier try has written the claim
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
        """Remove the job's reservation from the instance and, unless `keep_claim`, its claim."""
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
    ) -> tuple[ListedInstance, ...]:
        """Return every instance in one of `statuses`, GONE excepted, in the order of `statuses`, then by id."""
        by_status: dict[InstanceStatus, list[str]] = {status: [] for status in statuses}
        by_status.pop(InstanceStatus.GONE, None)
        for name in sorted(self.machines.records):
            status = self.machines.records[name].status
            if status in by_status:
                by_status[status].append(name)
        names = chain.from_iterable(by_status.values())
        return tuple(self.machines.part_of(name, ListedInstance) for name in names)

    def list_instances(
        self, limit: int, cursor: str | None, unreadable: list[Exception] | None = None, prefix: str = ""
    ) -> InstancePage:
        """Return a page of at most `limit` present instances, in the order of their ids."""
        records = self.machines.records
        present = sorted(name for name, record in records.items() if record.status is not InstanceStatus.GONE)
        names = [name for name in present if name.startswith(prefix) and (cursor is None or name > cursor)]
        page = tuple(self.machines.part_of(name, ListedInstance) for name in names[:limit])
        return InstancePage(page, page[-1].instance_id if len(names) > limit else None)

    def complete_listing(self, now: datetime) -> None:
        """Every record is in the list."""

    def add_to_listing(self, instance_ids: Sequence[str]) -> None:
        """Every record is in the list."""

    def instance_of(self, container_instance_id: str) -> str | None:
        """Return the EC2 instance id behind a container instance id, or None."""
        if not container_instance_id:
            check_key(container_instance_id)
        return self.registered.get(container_instance_id)

    def next_due(self) -> datetime | None:
        """Return when the first job or instance is due; None if no record is."""
        times = (at for at in (self.jobs.next_due(), self.machines.next_due()) if at is not None)
        return min(times, default=None)

    def is_notified(self, incident_id: str, now: datetime) -> bool:
        """Return whether operators were notified of the incident, and the mark has not ended."""
        return incident_id in self.notified and self.notified[incident_id] > now

    def mark_notified(self, incident_id: str, until: datetime) -> None:
        """Record that operators were notified of the incident."""
        check_key(f"#notified#{incident_id}")
        self.notified[incident_id] = max(until, self.notified.get(incident_id, until))

    def load_agent_task(self, task_id: str, now: datetime) -> tuple[str, datetime] | None:
        """Return the instance of a task of the agent's service, and until when it is remembered."""
        found = self.agent_tasks.get(task_id)
        return found if found is not None and found[1] > now else None

    def save_agent_task(self, task_id: str, instance_id: str, until: datetime) -> None:
        """Record the instance of a task, unless a record with a later end exists."""
        known = self.agent_tasks.get(task_id)
        if known is None or known[1] < until:
            self.agent_tasks[task_id] = (instance_id, until)

    def due_instances(self, now: datetime) -> Iterable[str]:
        """Return the ids of the instances that are due at `now`."""
        return self.machines.overdue(now)


def _may_claim(instance: Instance, job_id: str, claim: Claim, epoch: int) -> bool:
    existing = instance.claims.get(job_id)
    return (
        instance.status is InstanceStatus.AVAILABLE
        and instance.ecs_status == EcsStatus.ACTIVE
        and instance.epoch == epoch
        and instance.reserved_for in ("", job_id)
        and (instance.gpus_unclaimed >= claim.gpus if existing is None else existing == claim)
    )


def _queue_position(job: Job) -> tuple[datetime, str]:
    return job.queued_at, job.job_id


def _cursor(status: JobStatus, job: Job) -> str:
    return json.dumps([status, job.queued_at.isoformat(), job.job_id])


def _read_cursor(cursor: str) -> tuple[JobStatus, tuple[datetime, str]]:
    try:
        status, queued_at, job_id = json.loads(cursor)
        return JobStatus(status), (datetime.fromisoformat(queued_at), str(job_id))
    except (ValueError, TypeError) as error:
        raise CursorInvalid("the cursor was not issued by this service") from error


def _read_position(cursor: str) -> tuple[datetime, str]:
    try:
        queued_at, job_id = json.loads(cursor)
        return datetime.fromisoformat(queued_at), str(job_id)
    except (ValueError, TypeError) as error:
        raise CursorInvalid("the cursor was not issued by this service") from error
