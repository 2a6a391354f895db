"""The store of records: one Protocol for each kind of record, and `Store` with all of them.

`aws/` implements `Store` on DynamoDB and `simulator/` in memory. The same tests hold for both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from gpu_recovery.core.attempt import AttemptProgress, Plan
from gpu_recovery.core.diagnosis.observation_buffer import ObservationBuffer
from gpu_recovery.core.diagnosis.observations import Observation
from gpu_recovery.core.events import Checked
from gpu_recovery.core.fleet import Fleet
from gpu_recovery.core.gpu_lock import GpuLockRecord
from gpu_recovery.core.heartbeat import BY_ROLE, AgentCommand, Heartbeat
from gpu_recovery.core.instance.record import Claim, Instance, InstanceStatus
from gpu_recovery.core.job.record import Job, JobStatus
from gpu_recovery.core.queue.entry import Entry, LastPass
from gpu_recovery.core.state_machine import QuotaChange
from gpu_recovery.core.task import RankFailure
from gpu_recovery.ports.values import JobPage, ProgressUpdate


class JobStore(Protocol):
    """Records of jobs."""

    def create_job(self, job: Job, submitted: str) -> bool:
        """Keep a new job and the text it was submitted with; False if the id is taken."""

    def load_job(self, job_id: str) -> Job | None:
        """Read the record of a job; None if there is none."""

    def load_submitted(self, job_id: str) -> str | None:
        """The text that the job was submitted with; None where none is kept."""

    def save_job(self, job: Job, quota: QuotaChange | None = None) -> Job:
        """Keep `job` if nobody wrote it since its revision; the kept record. Raises StaleRecord.

        With `quota`, its user's books change in the same transaction; TermOver if that was decided
        in a term of the scheduler that is over.
        """

    def remove_finished_job_commands(self, job: Job, done: Sequence[str], deferred: Mapping[str, datetime]) -> None:
        """Take the commands `done` out of the record, whoever wrote it since `job` was read.

        `deferred` commands stay: refused once more, and not to be tried before the time given.
        """

    def jobs_in(
        self, statuses: Sequence[JobStatus], limit: int, unreadable: list[Exception] | None = None
    ) -> tuple[Job, ...]:
        """The first `limit` jobs in each of `statuses`, by when they were queued, freshly read.

        A record that cannot be read is an error; with `unreadable`, the error is added there and the others are found.
        """

    def list_jobs(
        self, status: JobStatus | None, limit: int, cursor: str | None, unreadable: list[Exception] | None = None
    ) -> JobPage:
        """Up to `limit` jobs in `status`, or in every one of LISTED, from `cursor` on. Raises CursorInvalid.

        `unreadable` as in jobs_in.
        """

    def due_jobs(self, now: datetime) -> Iterable[str]:
        """The ids of jobs whose deadline, look or claim has passed."""


class AttemptStore(Protocol):
    """Plan and progress of each attempt of a job."""

    def begin_attempt(self, plan: Plan) -> Plan:
        """Write the plan and an empty progress of an attempt unless they exist; the plan that holds."""

    def load_plan(self, job_id: str, attempt: int) -> Plan | None:
        """Read the plan of an attempt; None if there is none."""

    def load_progress(self, job_id: str, attempt: int) -> AttemptProgress | None:
        """Read the progress of an attempt; None if there is none."""

    def record_task(self, plan: Plan, rank: int, instance_id: str, task_id: str) -> None:
        """Enter one rank's instance and task into the plan."""

    def record_tasks(self, plan: Plan) -> None:
        """Enter every rank's task into the plan."""

    def add_running(self, job_id: str, attempt: int, rank: int) -> ProgressUpdate | None:
        """Enter that the rank runs; None if that is known, or it has ended, or there is no such rank."""

    def add_stopped(self, job_id: str, attempt: int, rank: int, failure: RankFailure | None) -> ProgressUpdate | None:
        """Enter that the rank has ended; None if that is known or there is no such rank."""

    def add_checked(self, job_id: str, attempt: int, rank: int, result: Checked) -> ProgressUpdate | None:
        """Enter the check of the rank's instance; None if it is in or there is no such attempt."""


class QueueStore(Protocol):
    """Queue entries, passes of the scheduler, quotas and run times."""

    def load_queue(self, unreadable: list[Exception] | None = None) -> tuple[Entry, ...]:
        """The entries of all jobs that wait for instances or have some. They may be old: each has its version.

        `unreadable` as in jobs_in.
        """

    def jobs_on_ray(self, unreadable: list[Exception] | None = None) -> tuple[Job, ...]:
        """Every job on Ray that waits for its GPUs or has them, freshly read; the newest may be missing for a moment.

        `unreadable` as in jobs_in.
        """

    def load_last_pass(self) -> LastPass:
        """What the scheduler remembers of itself, freshly read."""

    def begin_term(self) -> int:
        """The number of a new term: from now on nothing is kept that was decided in an earlier one."""

    def save_pass(self, ended: LastPass) -> None:
        """Remember a pass that came to its end, unless another has begun since."""

    def quota_used(self, keys: Iterable[str]) -> Mapping[str, int]:
        """How many instances are in use, by `QuotaKey.text`, freshly read; each of `keys` is in the answer."""

    def load_run_times(self, kinds: Iterable[str]) -> Mapping[str, tuple[int, ...]]:
        """How long the latest jobs of each of `kinds` (`queue.history.Kind.text`) ran in seconds, in any order."""

    def load_limits(self) -> tuple[Mapping[str, Any], int]:
        """The document of limits (`queue.quota.parse_limits`) and its revision; ({}, 0) where there is none."""

    def save_limits(self, document: Mapping[str, Any], revision: int) -> int:
        """Keep the document if nobody wrote it since `revision`; its new revision. Raises StaleRecord."""


class InstanceStore(Protocol):
    """Records of instances, their claims and their registrations."""

    def load_instance(self, instance_id: str) -> Instance | None:
        """Read the record of an instance; None if there is none."""

    def load_instances(self, instance_ids: Sequence[str]) -> Mapping[str, Instance]:
        """Those of the instances that there are, freshly read. One that cannot be read is not among them."""

    def save_instance(self, instance: Instance, fleet: Fleet | None = None) -> Instance:
        """Keep `instance` if nobody wrote it since its revision (0: it must not exist). Raises StaleRecord.

        With `fleet`, both are kept in one transaction or neither is: StaleRecord also if somebody wrote the fleet.
        """

    def remove_finished_instance_commands(
        self, instance: Instance, done: Sequence[str], deferred: Mapping[str, datetime]
    ) -> None:
        """As remove_finished_job_commands."""

    def remember_registration(self, instance: Instance) -> None:
        """Let `instance_of` find the instance by its present container instance id."""

    def instance_of(self, container_instance_id: str) -> str | None:
        """The EC2 instance that registered as this container instance."""

    def claim_instance(self, instance_id: str, job_id: str, claim: Claim, epoch: int | None) -> bool:
        """Add a claim. With `epoch`: only if the instance is available, at that epoch, and has the GPUs left.

        The same claim again is no other claim.
        """

    def release_instance(
        self,
        instance_id: str,
        job_id: str,
        keep_claim: bool,
        attempt: int | None = None,
        left_out_at: datetime | None = None,
    ) -> None:
        """Take the job's reservation off the instance and, unless `keep_claim`, its claim.

        With `attempt`, the claim of a later attempt stays. With `left_out_at`, it is remembered of the instance, in the
        write that takes the claim, that the job leaves it out from then on.
        """

    def instances_in(
        self, statuses: Sequence[InstanceStatus], unreadable: list[Exception] | None = None
    ) -> tuple[Instance, ...]:
        """Every instance in `statuses`; `unreadable` as in jobs_in."""

    def due_instances(self, now: datetime) -> Iterable[str]:
        """The ids of instances whose deadline, look or claim has passed."""


class FleetStore(Protocol):
    """The one record of the fleet limits."""

    def load_fleet(self) -> Fleet:
        """The brakes, consistently read; a blank record where there is none yet."""

    def save_fleet(self, fleet: Fleet) -> Fleet:
        """Keep `fleet` if nobody wrote it since its revision. Raises StaleRecord."""


class HeartbeatStore(Protocol):
    """Heartbeats of instances, commands for their agents, and GPU inventories."""

    def save_heartbeat(self, beat: Heartbeat, present: bool, by: str = BY_ROLE) -> Heartbeat | None:
        """Write what an instance reports; its heartbeat as it was before, None if this is the first.

        present: False for a report that is no sign of life any more; it moves the sequence of its own boot and
        nothing else.
        by: the id of the token that it came with: each has a limit of its own.
        `beat.ranks` are those it reports; others that are remembered stay, until they are forgotten. Another run than
        before takes the place of the one before. Raises SequenceStale, AnotherAgent and TooManyReports.
        """

    def load_heartbeats(
        self, instance_ids: Sequence[str], unreadable: list[Exception] | None = None
    ) -> Mapping[str, Heartbeat]:
        """The heartbeats of those of the instances that were ever heard of; `unreadable` as in jobs_in."""

    def forget_ranks(self, instance_id: str, seen_at: Mapping[str, datetime]) -> bool:
        """Forget these ranks, by running log, none of which was seen since the time beside it; False, and nothing is
        forgotten, if one was."""

    def mark_duplicate_agent(self, instance_id: str, at: datetime) -> None:
        """Enter that operators were told of two agents on one instance."""

    def mark_heartbeat_missing(self, instance_id: str, seen_at: datetime) -> bool:
        """Enter that nothing was heard of the instance since `seen_at`; False if something was."""

    def mark_rank_heartbeat_missing(self, instance_id: str, log_id: int, seen_at: datetime) -> bool:
        """Enter that the rank was not heard of since `seen_at`; False if it was."""

    def add_agent_command(self, instance_id: str, order: AgentCommand) -> bool:
        """Leave an order for the agent of the instance; False if it was never heard of."""

    def remove_agent_commands(self, instance_id: str, order_ids: Sequence[str]) -> None:
        """Take orders back that are carried out or void."""

    def save_inventory(self, instance_id: str, digest: str, text: str, at: datetime) -> None:
        """Keep what the instance says of its GPUs, as JSON text."""

    def load_inventory(self, instance_id: str) -> tuple[str, str, datetime] | None:
        """The digest, the JSON text and the time of the latest inventory; None if there is none."""


class ObservationStore(Protocol):
    """Observations that processes of an attempt report for a diagnosis."""

    def add_observations(
        self, job_id: str, attempt: int, instance_id: str, reports: Sequence[Observation], lost: int = 0
    ) -> None:
        """Keep what the attempt's processes on the instance tell for a diagnosis, each once by its id.

        Of an attempt on an instance the latest are kept, as `core.diagnosis.observation_buffer` has it; times to the
        millisecond. `lost` more did not come this far; it counts with reports that are new. Raises TryAgainSoon.
        """

    def observations_of(
        self, job_id: str, attempt: int, instance_ids: Sequence[str]
    ) -> Mapping[str, ObservationBuffer]:
        """What was told of the attempt on those of the instances that told anything, freshly read."""


class GpuLockStore(Protocol):
    """GPU locks of the processes of a job."""

    def load_lock(self, job_id: str, name: str) -> GpuLockRecord:
        """The lock of the job, freshly read; one that nobody ever had where there is none."""

    def save_lock(self, lock: GpuLockRecord) -> None:
        """Keep it if nobody wrote it since its revision. Raises StaleRecord."""


class Store(
    JobStore,
    AttemptStore,
    QueueStore,
    InstanceStore,
    FleetStore,
    HeartbeatStore,
    ObservationStore,
    GpuLockStore,
    Protocol,
):
    """Every record. Each write is conditional or repeatable; no record is found by a scan of a table."""
