"""What the loop needs of the outside: a store that keeps records, and actions that carry orders to AWS.

`aws/` implements both on AWS and `simulator/` in memory; the same tests hold for both stores.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from gpu_recovery.core.attempt import Plan, Progress
from gpu_recovery.core.commands import NotifyOperator, PublishEvent
from gpu_recovery.core.diagnosis.observation_buffer import ReportsKept
from gpu_recovery.core.diagnosis.observations import Report
from gpu_recovery.core.errors import RecoveryError
from gpu_recovery.core.events import Checked, DepartureAnnounced, HealthReported, InstanceObserved
from gpu_recovery.core.fleet import Fleet
from gpu_recovery.core.gpu_lock import GpuLock
from gpu_recovery.core.health_check import Verdict
from gpu_recovery.core.health_signals import MachineState
from gpu_recovery.core.heartbeat import BY_ROLE, Beat, Order
from gpu_recovery.core.instance.record import Claim, Instance, InstanceStatus
from gpu_recovery.core.job.record import Job, JobStatus
from gpu_recovery.core.queue.entry import Entry, LastPass
from gpu_recovery.core.state_machine import QuotaChange
from gpu_recovery.core.task import RankFailure, TaskFact


class StaleRecord(RecoveryError):
    """Somebody wrote the record since it was read: read it again and decide again."""


class TermOver(RecoveryError):
    """The scheduler's pass is over, because another has begun: what it decided is not kept."""


class CursorInvalid(RecoveryError):
    """A listing cursor that this service did not hand out."""


class SequenceStale(RecoveryError):
    """A report older than one that was heard of the same boot. `last` is the newest's number."""

    def __init__(self, last: int) -> None:
        super().__init__(f"report {last} of this boot was heard already")
        self.last = last


class AnotherAgent(RecoveryError):
    """A report of an agent whose place another took: two speak for one instance. `known` is its heartbeat."""

    def __init__(self, known: Beat) -> None:
        super().__init__(f"another agent, that started later, speaks for {known.instance_id}")
        self.known = known


class TooManyReports(RecoveryError):
    """Whoever has one token reports more often than they may; `retry_after_s` is when the next will be heard."""

    def __init__(self, retry_after_s: int) -> None:
        super().__init__(f"too many reports; the next in {retry_after_s} s")
        self.retry_after_s = retry_after_s


class VerdictUnreadable(RecoveryError):
    """A verdict document that is not one."""


class TryAgainSoon(RecoveryError):
    """AWS did definitely not do it, because too much is asked of it or its answers do not agree yet."""


class OutcomeUnknown(RecoveryError):
    """A call to AWS may or may not have taken effect, and cannot simply be made again."""


@dataclass(frozen=True, slots=True)
class Addition:
    """The progress after a rank's fact was added, and whether that fact is the attempt's first failure."""

    after: Progress
    first_failure: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    """ECS definitely did not start a task, and says why. `lasting`: asking again will not help."""

    reason: str
    lasting: bool = False


@dataclass(frozen=True, slots=True)
class Machine:
    """What EC2 says of one instance at this moment, as far as a repair must know it.

    handed_over:  it carries the tag by which its owners let us reboot and replace it.
    kept_back:    it carries the tag by which a person keeps it from us for a while (maintenance).
    group:        its Auto Scaling group, "" if it is in none.
    restartable:  it may be stopped and started again: on demand, with a root volume on EBS.
    """

    state: MachineState
    handed_over: bool = True
    kept_back: bool = False
    group: str = ""
    restartable: bool = False


def state_of(instance_id: str, machines: Mapping[str, Machine], agent_connected: bool) -> MachineState | None:
    """The state of a machine that was asked for; None where nobody knows, as of one that is none of EC2's (`mi-...`).

    EC2 forgets a terminated instance after an hour or so: one that it does not know is terminated, unless its agent
    lives, for then EC2's answer is not whole.
    """
    if instance_id in machines:
        return machines[instance_id].state
    return MachineState.TERMINATED if instance_id.startswith("i-") and not agent_connected else None


@dataclass(frozen=True, slots=True)
class MachineStatus:
    """What EC2's own checks and plans say of one instance: both status checks, and the scheduled events."""

    state: MachineState
    health: tuple[HealthReported, ...] = ()
    departures: tuple[DepartureAnnounced, ...] = ()


@dataclass(frozen=True, slots=True)
class JobPage:
    """Some jobs of a listing, and the cursor that continues it (None at its end)."""

    jobs: tuple[Job, ...]
    cursor: str | None


LISTED = (
    JobStatus.RUNNING,
    JobStatus.LOST,
    JobStatus.SUBMITTED,
    JobStatus.SUBMITTING,
    JobStatus.SUSPENDING,
    JobStatus.STOPPING,
    JobStatus.DIAGNOSING,
    JobStatus.RECOVERING,
    JobStatus.QUEUED,
    JobStatus.PENDING_RESOURCES,
    JobStatus.SUSPENDED,
    JobStatus.FAILED,
    JobStatus.CANCELED,
    JobStatus.SUCCEEDED,
)
"""The order of a listing of everything: what is under way first."""


class Store(Protocol):
    """Where records live. Every write is conditional or repeatable; nothing is ever read by a scan."""

    def create_job(self, job: Job, submitted: str) -> bool:
        """Keep a new job and the text it was submitted with; False if the id is taken."""

    def load_job(self, job_id: str) -> Job | None: ...

    def load_submitted(self, job_id: str) -> str | None:
        """The text that the job was submitted with; None where none is kept."""

    def save_job(self, job: Job, quota: QuotaChange | None = None) -> Job:
        """Keep `job` if nobody wrote it since its revision; the kept record. Raises StaleRecord.

        With `quota`, its user's books change in the same transaction; TermOver if that was decided
        in a term of the scheduler that is over.
        """

    def line(self, unreadable: list[Exception] | None = None) -> tuple[Entry, ...]:
        """The entries of all jobs that wait for instances or have some. They may be old: each has its version.

        `unreadable` as in jobs_in.
        """

    def jobs_on_ray(self, unreadable: list[Exception] | None = None) -> tuple[Job, ...]:
        """Every job on Ray that waits for its GPUs or has them, freshly read; the newest may be missing for a moment.

        `unreadable` as in jobs_in.
        """

    def last_pass(self) -> LastPass:
        """What the scheduler remembers of itself, freshly read."""

    def begin_term(self) -> int:
        """The number of a new term: from now on nothing is kept that was decided in an earlier one."""

    def end_pass(self, ended: LastPass) -> None:
        """Remember a pass that came to its end, unless another has begun since."""

    def quota_used(self, keys: Iterable[str]) -> Mapping[str, int]:
        """How many instances are in use, by `QuotaKey.text`, freshly read; each of `keys` is in the answer."""

    def load_run_times(self, kinds: Iterable[str]) -> Mapping[str, tuple[int, ...]]:
        """How long the latest jobs of each of `kinds` (`queue.history.Kind.text`) ran in seconds, in any order."""

    def load_limits(self) -> tuple[Mapping[str, Any], int]:
        """The document of limits (`queue.quota.parse_limits`) and its revision; ({}, 0) where there is none."""

    def save_limits(self, document: Mapping[str, Any], revision: int) -> int:
        """Keep the document if nobody wrote it since `revision`; its new revision. Raises StaleRecord."""

    def settle_job(self, job: Job, done: Sequence[str], deferred: Mapping[str, datetime]) -> None:
        """Take the commands `done` out of the record, whoever wrote it since `job` was read.

        `deferred` commands stay: refused once more, and not to be tried before the time given.
        """

    def begin_attempt(self, plan: Plan) -> Plan:
        """Write the plan and an empty progress of an attempt unless they exist; the plan that holds."""

    def load_plan(self, job_id: str, attempt: int) -> Plan | None: ...

    def load_progress(self, job_id: str, attempt: int) -> Progress | None: ...

    def record_task(self, plan: Plan, rank: int, instance_id: str, task_id: str) -> None:
        """Enter one rank's instance and task into the plan."""

    def record_tasks(self, plan: Plan) -> None:
        """Enter every rank's task into the plan."""

    def add_running(self, job_id: str, attempt: int, rank: int) -> Addition | None:
        """Enter that the rank runs; None if that is known, or it has ended, or there is no such rank."""

    def add_stopped(self, job_id: str, attempt: int, rank: int, failure: RankFailure | None) -> Addition | None:
        """Enter that the rank has ended; None if that is known or there is no such rank."""

    def add_checked(self, job_id: str, attempt: int, rank: int, result: Checked) -> Addition | None:
        """Enter the check of the rank's instance; None if it is in or there is no such attempt."""

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

    def load_instance(self, instance_id: str) -> Instance | None: ...

    def load_instances(self, instance_ids: Sequence[str]) -> Mapping[str, Instance]:
        """Those of the instances that there are, freshly read. One that cannot be read is not among them."""

    def save_instance(self, instance: Instance, fleet: Fleet | None = None) -> Instance:
        """Keep `instance` if nobody wrote it since its revision (0: it must not exist). Raises StaleRecord.

        With `fleet`, both are kept in one transaction or neither is: StaleRecord also if somebody wrote the fleet.
        """

    def load_fleet(self) -> Fleet:
        """The brakes, consistently read; a blank record where there is none yet."""

    def save_fleet(self, fleet: Fleet) -> Fleet:
        """Keep `fleet` if nobody wrote it since its revision. Raises StaleRecord."""

    def remember_registration(self, instance: Instance) -> None:
        """Let `instance_of` find the instance by its present container instance id."""

    def settle_instance(self, instance: Instance, done: Sequence[str], deferred: Mapping[str, datetime]) -> None:
        """As settle_job."""

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

    def instance_of(self, container_instance_id: str) -> str | None:
        """The EC2 instance that registered as this container instance."""

    def due_instances(self, now: datetime) -> Iterable[str]: ...

    def keep_beat(self, beat: Beat, present: bool, by: str = BY_ROLE) -> Beat | None:
        """Write what an instance reports; its heartbeat as it was before, None if this is the first.

        present: False for a report that is no sign of life any more; it moves the sequence of its own boot and
        nothing else.
        by: the id of the token that it came with: each has a limit of its own.
        `beat.ranks` are those it reports; others that are remembered stay, until they are forgotten. Another run than
        before takes the place of the one before. Raises SequenceStale, AnotherAgent and TooManyReports.
        """

    def forget_ranks(self, instance_id: str, seen_at: Mapping[str, datetime]) -> bool:
        """Forget these ranks, by running log, none of which was seen since the time beside it; False, and nothing is
        forgotten, if one was."""

    def mark_doubled(self, instance_id: str, at: datetime) -> None:
        """Enter that operators were told of two agents on one instance."""

    def beats(self, instance_ids: Sequence[str], unreadable: list[Exception] | None = None) -> Mapping[str, Beat]:
        """The heartbeats of those of the instances that were ever heard of; `unreadable` as in jobs_in."""

    def mark_silent(self, instance_id: str, seen_at: datetime) -> bool:
        """Enter that nothing was heard of the instance since `seen_at`; False if something was."""

    def mark_rank_silent(self, instance_id: str, log_id: int, seen_at: datetime) -> bool:
        """Enter that the rank was not heard of since `seen_at`; False if it was."""

    def give_order(self, instance_id: str, order: Order) -> bool:
        """Leave an order for the agent of the instance; False if it was never heard of."""

    def withdraw_orders(self, instance_id: str, order_ids: Sequence[str]) -> None:
        """Take orders back that are carried out or void."""

    def keep_inventory(self, instance_id: str, digest: str, text: str, at: datetime) -> None:
        """Keep what the instance says of its GPUs, as JSON text."""

    def inventory(self, instance_id: str) -> tuple[str, str, datetime] | None:
        """The digest, the JSON text and the time of the latest inventory; None if there is none."""

    def add_reports(
        self, job_id: str, attempt: int, instance_id: str, reports: Sequence[Report], lost: int = 0
    ) -> None:
        """Keep what the attempt's processes on the instance tell for a diagnosis, each once by its id.

        Of an attempt on an instance the latest are kept, as `report_ring` has it; times to the millisecond. `lost`
        more did not come this far; it counts with reports that are new. Raises TryAgainSoon.
        """

    def load_lock(self, job_id: str, name: str) -> GpuLock:
        """The lock of the job, freshly read; one that nobody ever had where there is none."""

    def save_lock(self, lock: GpuLock) -> None:
        """Keep it if nobody wrote it since its revision. Raises StaleRecord."""

    def reports_of(self, job_id: str, attempt: int, instance_ids: Sequence[str]) -> Mapping[str, ReportsKept]:
        """What was told of the attempt on those of the instances that told anything, freshly read."""


class Actions(Protocol):
    """Orders to AWS and questions to it. Each is safe to repeat, or says OutcomeUnknown."""

    def run_ranks(self, job: Job, plan: Plan) -> tuple[str | Refusal, ...]:
        """One ECS task per rank on its instance; the task ids, or why not, in rank order."""

    def run_check(self, instance: Instance, check_id: str, refusals: int) -> str | Refusal:
        """The check's task id, or why not; `refusals` noes so far make this another request than the last.

        A check that is passive (`instance.check`) takes no GPU: others work on the instance.
        """

    def stop_tasks(self, task_ids: Sequence[str], reason: str) -> None:
        """StopTask for each; a task that ECS does not know or that has stopped is no error."""

    def stop_task(self, task_id: str, reason: str) -> bool:
        """StopTask for one; False if ECS knows no such task."""

    def tasks_started_by(self, started_by: str) -> tuple[str, ...]:
        """The ids of the tasks with this `startedBy`, running or lately stopped."""

    def describe_tasks(self, task_ids: Sequence[str]) -> tuple[TaskFact, ...]:
        """What ECS says of those tasks it still knows."""

    def running_tasks(
        self, unreadable: list[Exception] | None = None, known: Collection[str] = ()
    ) -> Iterable[TaskFact]:
        """Every task of the cluster that is to run, but those whose ids are `known`.

        One that nobody can read is raised, or goes to `unreadable`.
        """

    def tasks_on(self, instance: Instance) -> tuple[TaskFact, ...]:
        """Every task on the instance that is to run, whoever started it."""

    def machines(self, instance_ids: Sequence[str]) -> Mapping[str, Machine]:
        """What EC2 says of those of the instances that it still knows."""

    def machine_statuses(self, instance_ids: Sequence[str]) -> Mapping[str, MachineStatus]:
        """What EC2's status checks and scheduled events say of those of the instances that it still knows."""

    def container_instances(self, unreadable: list[Exception] | None = None) -> Iterable[tuple[str, InstanceObserved]]:
        """Every container instance of the cluster as (EC2 instance id, what ECS says).

        One that nobody can read is raised, or goes to `unreadable`.
        """

    def describe_instance(self, container_instance_id: str) -> tuple[str, InstanceObserved] | None: ...

    def drain(self, instance: Instance) -> None: ...

    def activate(self, instance: Instance) -> None: ...

    def reboot(self, instance_id: str) -> Refusal | None:
        """RebootInstances; why not, if EC2 definitely refuses. Raises OutcomeUnknown if the answer was lost."""

    def replace(self, instance_id: str, group: str) -> Refusal | None:
        """Terminate it in its Auto Scaling group `group`, which puts another in its place; "": stop it. Why not, else.

        Both may be asked for again.
        """

    def start(self, instance_id: str) -> Refusal | None:
        """Start the stopped machine; why not, if EC2 definitely refuses. It may be asked for again."""

    def deregister(self, container_instance_id: str) -> None:
        """Take a registration away by force, tasks or not; one that ECS does not know is no error."""

    def verdict(self, check_id: str) -> Verdict | None:
        """The document that the check left, None if there is none with its id. Raises VerdictUnreadable."""

    def log_tail(self, job: Job, task_id: str, most: int) -> tuple[str, ...] | str:
        """The last `most` lines that the job's container wrote in the task, or why there are none, in a sentence."""

    def notify(self, message: NotifyOperator) -> None: ...

    def publish(self, event: PublishEvent, causation_id: str) -> None:
        """Put it on the bus; the decision `causation_id` (`<record>/<version>`) has ordered it."""

    def poke_scheduler(self, key: str) -> None: ...

    def record_submitted(self, job: Job, submitted: str) -> None:
        """Write the text that the job was submitted with where people keep records."""

    def record_attempt(self, job: Job, plan: Plan, view: Mapping[str, Any]) -> None:
        """Write what is known of one attempt there: `view` as clients see it, and what its backend was sent."""
