"""Interface of the store: one Protocol for each kind of record, and `Store` with all of them.

`aws/` implements `Store` on DynamoDB and `simulator/` in memory. The same tests hold for both.

Names that mean the same in every method:

unreadable: collects the errors of records that cannot be read; the readable records are returned. Without it the first
            such error is raised.
revision:   a number in the record that each write increases. A write with an old revision raises StaleRecord.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, Protocol

from gpu_recovery.core.attempt import AttemptProgress, Plan, RankTask
from gpu_recovery.core.diagnosis.observation_buffer import ObservationBuffer
from gpu_recovery.core.diagnosis.observations import Observation
from gpu_recovery.core.events import Checked
from gpu_recovery.core.fleet import Fleet
from gpu_recovery.core.gpu_lock import GpuLockRecord
from gpu_recovery.core.instance.record import Claim, Instance, InstanceStatus, ListedInstance
from gpu_recovery.core.job.record import Job, JobStatus
from gpu_recovery.core.queue.entry import Entry, LastPass
from gpu_recovery.core.state_machine import QuotaChange
from gpu_recovery.core.task import RankFailure
from gpu_recovery.ports.heartbeats import HeartbeatStore
from gpu_recovery.ports.job_lists import JobLists
from gpu_recovery.ports.values import InstancePage, ProgressUpdate, RefusedCheck, StartedCheck


class JobStore(JobLists, Protocol):
    """Records of jobs."""

    def create_job(self, job: Job, submitted: str) -> bool:
        """Save a new job and its submitted text. Return False, and change nothing, if the job id is taken."""

    def load_job(self, job_id: str) -> Job | None:
        """Return the record of a job, consistently read; None if there is none."""

    def load_submitted(self, job_id: str) -> str | None:
        """Return the text that the job was submitted with; None if none is stored."""

    def save_job(self, job: Job, quota: QuotaChange | None = None) -> Job:
        """Save `job` if the stored revision is still `job.revision`.

        Args:
            quota: change of the user's quota count, written in the same transaction.

        Returns:
            The job with its new revision.

        Raises:
            StaleRecord: another writer saved the job since its revision.
            TermOver: `quota` was decided in a term of the scheduler that is over.
        """

    def remove_finished_job_commands(self, job: Job, done: Sequence[str], deferred: Mapping[str, datetime]) -> None:
        """Remove finished commands from the stored job and put deferred commands off.

        The write succeeds even if another writer saved the job since `job` was read.

        Args:
            job: the record as it was last saved.
            done: the ids of the commands to remove.
            deferred: for each command that stays, by its id, the time before which it is not tried again. Its
                `refusals` rises by 1.
        """

    def jobs_in(
        self, statuses: Sequence[JobStatus], limit: int, unreadable: list[Exception] | None = None
    ) -> tuple[Job, ...]:
        """Return at most `limit` jobs of each status, the longest queued first, consistently read."""

    def due_jobs(self, now: datetime) -> Iterable[str]:
        """Return the ids of jobs with a deadline, a poll time or an end of a command lease at or before `now`.

        The longest overdue job comes first.
        """


class AttemptStore(Protocol):
    """Plan and progress of each attempt of a job, and the launch key."""

    def launch_key(self) -> str:
        """Return the secret key of launch signatures. The first call of a deployment creates the key."""

    def begin_attempt(self, plan: Plan) -> Plan:
        """Write `plan` and an empty progress unless they exist. Return the stored plan."""

    def load_plan(self, job_id: str, attempt: int) -> Plan | None:
        """Return the plan of an attempt; None if there is none. It includes the tasks of `record_task`."""

    def load_planned_task(self, job_id: str, attempt: int, rank: int) -> RankTask | None:
        """Return the task and the instance of one rank as `load_plan` has them, consistently read.

        Each rank of a gang may call this within the same second. The whole plan is not read.

        Returns:
            None if there is no plan; "" as task and instance of a rank that the attempt does not have.
        """

    def load_progress(self, job_id: str, attempt: int) -> AttemptProgress | None:
        """Return the whole progress of an attempt, consistently read; None if there is none."""

    def has_progress(self, job_id: str, attempt: int, rank: int) -> bool:
        """Return whether the attempt has a progress, consistently read.

        Each rank of a gang may call this within the same second. `rank` is the rank that the caller records next.
        """

    def record_task(self, job_id: str, attempt: int, rank: int, task: RankTask) -> RankTask:
        """Record the task of one rank that a user started, unless another task of the rank is recorded.

        The ranks of a gang are recorded side by side: each is a write of its own, and none waits for another.

        Returns:
            The recorded task of the rank.
        """

    def load_task(self, job_id: str, attempt: int, rank: int) -> RankTask | None:
        """Return the task of a rank that `record_task` recorded; None if none is recorded."""

    def record_tasks(self, plan: Plan, ranks: Iterable[int]) -> None:
        """Write the task ids and instances of `plan` into the stored plan, unless the attempt was never begun.

        Args:
            plan: the plan.
            ranks: the ranks with changed values. The values of other ranks may be written, too.
        """

    def add_running(self, job_id: str, attempt: int, rank: int) -> ProgressUpdate | None:
        """Record that the rank runs.

        Returns:
            The progress after the write (`ProgressUpdate`). None without a write if the rank is known to run or to have
            ended, or if the attempt has no such rank.

        A fact is known as soon as it is written, also if the caller was killed before it could act on the answer. The
        reconciler finds the event that was not delivered in the whole progress.
        """

    def add_stopped(self, job_id: str, attempt: int, rank: int, failure: RankFailure | None) -> ProgressUpdate | None:
        """Record that the rank has ended. The first failure of an attempt stays; later failures do not replace it.

        Args:
            failure: how the rank failed; None if its end is no failure.

        Returns:
            The progress after the write, and whether this failure is the first of the attempt. None without a write if
            the end is known or if the attempt has no such rank.
        """

    def add_held(self, job_id: str, attempt: int, rank: int, failure: RankFailure) -> ProgressUpdate | None:
        """Record that the process of the rank has ended while its container waits. Return as `add_stopped` does."""

    def add_checked(self, job_id: str, attempt: int, rank: int, result: Checked) -> ProgressUpdate | None:
        """Record the health check of the rank's instance.

        Returns:
            The progress after the write. None without a write if a result is recorded already or if the attempt has no
            such rank.
        """


class QueueStore(Protocol):
    """Queue entries, passes of the scheduler, quotas and run times."""

    def load_queue(self, unreadable: list[Exception] | None = None) -> tuple[Entry, ...]:
        """Return the queue entries of all jobs that wait for instances or hold some.

        An entry may be outdated. Its version fences every decision that is based on it.
        """

    def load_waiting(self, unreadable: list[Exception] | None = None) -> tuple[Entry, ...]:
        """Return those entries of `load_queue` whose jobs wait for instances."""

    def jobs_on_ray(self, unreadable: list[Exception] | None = None) -> tuple[Job, ...]:
        """Return every job on Ray that waits for GPUs or holds some, consistently read.

        A job that was created a moment ago may be missing.
        """

    def load_ray_queue(self, unreadable: list[Exception] | None = None) -> tuple[Entry, ...]:
        """Return the queue entries of all jobs on Ray that wait for GPUs or hold some, as `load_queue` does."""

    def load_last_pass(self) -> LastPass:
        """Return the record of the scheduler's last pass, consistently read."""

    def add_changed_instance(self, instance_id: str, now: datetime) -> bool:
        """Add the instance, whose change is saved, for the next pass. Return whether a message must wake the pass."""

    def take_changed_instances(self) -> Collection[str]:
        """Return ids of instances that changed since the last call, not necessarily all. Later changes are new."""

    def begin_term(self) -> int:
        """Begin a new term and return its number. Decisions of earlier terms are refused from now on (TermOver)."""

    def recent_placements(self, term: int, since: datetime) -> Collection[str]:
        """Return the ids of the jobs whose placement was remembered at `since` or later, consistently read.

        Older placements are forgotten, if `term` is still the present term.
        """

    def save_pass(self, ended: LastPass) -> None:
        """Save the pass that has ended, unless another term has begun since."""

    def quota_used(self, keys: Iterable[str]) -> Mapping[str, int]:
        """Return the number of instances in use by quota key (`QuotaKey.text`), consistently read. Default: 0."""

    def load_run_times(self, kinds: Iterable[str]) -> Mapping[str, tuple[int, ...]]:
        """Return the run times, in seconds and in any order, of the latest jobs of each kind (`JobKind.text`)."""

    def load_limits(self) -> tuple[Mapping[str, Any], int]:
        """Return the quota limits (`queue.quota.parse_limits`) and their revision; ({}, 0) if there are none."""

    def save_limits(self, document: Mapping[str, Any], revision: int) -> int:
        """Save the document of quota limits if its stored revision is still `revision`. Return the new revision.

        Raises:
            StaleRecord: another writer saved the document since `revision`.
        """


class InstanceStore(Protocol):
    """Records of instances, their claims and their registrations."""

    def load_instance(self, instance_id: str) -> Instance | None:
        """Return the record of an instance, consistently read; None if there is none."""

    def load_instances(self, instance_ids: Sequence[str]) -> Mapping[str, Instance]:
        """Return these records by instance id, consistently read. Missing and unreadable records are left out."""

    def save_instance(self, instance: Instance, fleet: Fleet | None = None) -> Instance:
        """Save `instance` if the stored revision is still `instance.revision`; 0 means that no record may exist.

        Args:
            fleet: a changed fleet record, saved in the same transaction: both records or neither.

        Returns:
            The instance with its new revision.

        Raises:
            StaleRecord: another writer saved the instance, or the fleet record, since it was read.
        """

    def remove_finished_instance_commands(
        self,
        instance: Instance,
        done: Sequence[str],
        deferred: Mapping[str, datetime],
        check_request: StartedCheck | RefusedCheck | None = None,
    ) -> None:
        """Do for an instance what `remove_finished_job_commands` does for a job.

        Args:
            check_request: the answer to the request of a health check. The task id or the refusal is written into the
                record if the check is still under way.
        """

    def remember_registration(self, instance: Instance) -> None:
        """Store the present container instance id of the instance, so that `instance_of` finds the instance."""

    def instance_of(self, container_instance_id: str) -> str | None:
        """Return the EC2 instance id behind a container instance id; None if no registration is stored."""

    def claim_instance(self, instance_id: str, job_id: str, claim: Claim, epoch: int | None, replaces: int = 0) -> bool:
        """Add the claim of an attempt to an instance. Repeating the same claim succeeds and changes nothing.

        Args:
            epoch: the epoch at which the instance was placed. The claim then needs an available, ECS-ACTIVE instance at
                this epoch, with enough unclaimed GPUs and no reservation for another job. None for an adopted rank,
                which holds its GPUs already: the claim is added in any state of a known instance.
            replaces: an earlier attempt whose claim of as many GPUs becomes the claim of this attempt; 0 for none.

        Returns:
            False if the claim was refused.

        Raises:
            StaleRecord: only without `epoch`, if other writers saved the instance at every try.
        """

    def release_instance(
        self,
        instance_id: str,
        job_id: str,
        keep_claim: bool,
        attempt: int | None = None,
        left_out_at: datetime | None = None,
    ) -> None:
        """Remove the job's reservation from the instance and, unless `keep_claim`, its claim.

        Args:
            attempt: the claim of a later attempt stays.
            left_out_at: the time at which the job left the instance out of its next launch. It is added to the fault
                history of the instance in the write that removes the claim.
        """

    def instances_in(
        self, statuses: Sequence[InstanceStatus], unreadable: list[Exception] | None = None
    ) -> tuple[ListedInstance, ...]:
        """Return every instance in one of `statuses`, without histories. They may lag behind the latest writes.

        Args:
            statuses: statuses of `PRESENT`, whose order is that of the answer. Instances of a status are in the order
                of their ids.
            unreadable: collects the errors of records that cannot be read. Without it the first such error is raised.
        """

    def list_instances(
        self, limit: int, cursor: str | None, unreadable: list[Exception] | None = None, prefix: str = ""
    ) -> InstancePage:
        """Return a page of at most `limit` present instances, in the order of their ids. Only the page is read.

        Args:
            cursor: the `cursor` of the page before; None for the first page.
            prefix: first characters of the ids.
        """

    def complete_listing(self, now: datetime) -> None:
        """Add present instances that an older release wrote to the list that `instances_in` reads.

        The reconciler calls this each minute. One call adds a bounded number.
        """

    def add_to_listing(self, instance_ids: Sequence[str]) -> None:
        """Add instances to the list that `instances_in` reads, if they have a record and are present.

        The reconciler calls this for instances that ECS shows and the list lacks. One call adds a bounded number.
        """

    def due_instances(self, now: datetime) -> Iterable[str]:
        """Return the ids of instances with a deadline, a poll time or an end of a command lease at or before `now`.

        The longest overdue instance comes first.
        """


class FleetStore(Protocol):
    """The single record of the fleet limits."""

    def load_fleet(self) -> Fleet:
        """Return the fleet record, consistently read; an empty record if none is stored."""

    def save_fleet(self, fleet: Fleet) -> Fleet:
        """Save `fleet` if the stored revision is still `fleet.revision`. Return the fleet with its new revision.

        Raises:
            StaleRecord: another writer saved the fleet record since its revision.
        """


class ObservationStore(Protocol):
    """Observations that processes of an attempt report for a diagnosis."""

    def add_observations(
        self, job_id: str, attempt: int, instance_id: str, reports: Sequence[Observation], lost: int = 0
    ) -> None:
        """Add observations of the attempt's processes on one instance. Each is stored once by its id.

        The store holds a bounded number for each attempt and instance (`core.diagnosis.observation_buffer`). Times have
        millisecond precision.

        Args:
            lost: number of observations that were lost before they arrived. It is counted only together with a new
                observation.

        Raises:
            TryAgainSoon: other writers changed the item at every try.
        """

    def observations_of(
        self, job_id: str, attempt: int, instance_ids: Sequence[str]
    ) -> Mapping[str, ObservationBuffer]:
        """Return the stored observations by instance id, consistently read. Instances without any are left out."""

    def reading_for_figures(self) -> AbstractContextManager[None]:
        """Raise Unavailable for each read inside that AWS did not answer, throttled or refused.

        For reads on which no decision depends, so that the caller can go on without them.
        """


class GpuLockStore(Protocol):
    """GPU locks of the processes of a job."""

    def load_lock(self, job_id: str, name: str) -> GpuLockRecord:
        """Return the lock of the job, consistently read; a blank lock if none is stored."""

    def save_lock(self, lock: GpuLockRecord, now: datetime) -> None:
        """Save `lock` if the stored revision is still `lock.revision`.

        The lock is deleted some time after UNUSED_TTL without another save.

        Raises:
            StaleRecord: another writer saved the lock since its revision.
            TooManyLocks: the name is new, and the job has used LOCKS_MAX names.
        """


class NotificationStore(Protocol):
    """Marks of the notifications about incidents that belong to no record."""

    def is_notified(self, incident_id: str, now: datetime) -> bool:
        """Return whether operators were notified of the incident, and the mark has not ended at `now`."""

    def mark_notified(self, incident_id: str, until: datetime) -> None:
        """Record that operators were notified of the incident. The mark is deleted some time after `until`."""


class AgentTaskStore(Protocol):
    """The instance of each task of the node agent's daemon service."""

    def load_agent_task(self, task_id: str, now: datetime) -> tuple[str, datetime] | None:
        """Return the EC2 instance id of a task, and until when it is remembered; None if it is unknown at `now`."""

    def save_agent_task(self, task_id: str, instance_id: str, until: datetime) -> None:
        """Record the instance of a task. The record is deleted some time after `until`."""


class Store(
    JobStore,
    AttemptStore,
    QueueStore,
    InstanceStore,
    FleetStore,
    HeartbeatStore,
    ObservationStore,
    GpuLockStore,
    NotificationStore,
    AgentTaskStore,
    Protocol,
):
    """The store of all records. Each write is conditional or repeatable. No method scans a table."""
