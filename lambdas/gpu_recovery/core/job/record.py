"""The record of a job: causes and fields. Its statuses are in `status.py`, its transitions in `state_machine.py`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from enum import StrEnum

from gpu_recovery.core.job.diagnosis_result import DiagnosisResult, PastDiagnosis
from gpu_recovery.core.job.downtime import Downtime
from gpu_recovery.core.job.spec import JobSpec
from gpu_recovery.core.job.status import LIVE, PLACED, RUNS, TERMINAL, WAITING, JobStatus
from gpu_recovery.core.lazy_dataclass import frozen_dataclass
from gpu_recovery.core.missing_permission import MissingPermission
from gpu_recovery.core.policy import RecoveryPolicy
from gpu_recovery.core.queue.quota import QuotaKey
from gpu_recovery.core.state_machine import HistoryEntry, PendingCommand
from gpu_recovery.core.task import RankFailure

__all__ = [
    "BLAMED_MAX",
    "LIVE",
    "PLACED",
    "REFUSED_MAX",
    "RUNS",
    "TERMINAL",
    "UNCOUNTED",
    "WAITING",
    "CloseCause",
    "DeniedLaunch",
    "FirstEnd",
    "Job",
    "JobStatus",
    "ListedJob",
    "Origin",
    "StopPurpose",
    "Suspicion",
    "WarmSpare",
]


class Origin(StrEnum):
    """How a job entered the system."""

    SUBMITTED = "SUBMITTED"
    ADOPTED = "ADOPTED"


class StopPurpose(StrEnum):
    """What follows after every rank has ended."""

    DIAGNOSE = "DIAGNOSE"
    RELAUNCH = "RELAUNCH"
    GROW = "GROW"  # the next attempt of an elastic job, which keeps its instances: on more, or without refusing ones
    SUSPEND = "SUSPEND"
    FAIL = "FAIL"
    CANCEL = "CANCEL"


class CloseCause(StrEnum):
    """Why an attempt closed, as far as its count is concerned."""

    APPLICATION = "APPLICATION"
    HARDWARE = "HARDWARE"
    INCONCLUSIVE = "INCONCLUSIVE"
    INSUFFICIENT_RESOURCES = "INSUFFICIENT_RESOURCES"
    INTERRUPTED = "INTERRUPTED"
    REPAIR = "REPAIR"  # an instance had to be repaired for a reason that is not this job's
    SUSPENDED = "SUSPENDED"  # the job asked for its own suspension
    PERMISSION = "PERMISSION"  # the deployment lacks a permission
    GROWN = "GROWN"  # an elastic job continues on more instances


BLAMED_MAX = 8
"""Upper bound of the instances in `Job.blamed`."""
REFUSED_MAX = 16
"""Upper bound of the instances in `Job.refused`."""
UNCOUNTED = frozenset(
    {
        CloseCause.INSUFFICIENT_RESOURCES,
        CloseCause.INTERRUPTED,
        CloseCause.REPAIR,
        CloseCause.SUSPENDED,
        CloseCause.PERMISSION,
        CloseCause.GROWN,
    }
)
"""Causes of an uncounted relaunch: the attempt does not count towards `attempts_max`."""


@frozen_dataclass()
class DeniedLaunch:
    """The last launch of a job that AWS denied because the deployment lacks a permission.

    Attributes:
        lacks: the missing permission.
        at: time of the denial; of the launch that succeeded since, if `over`.
        launches: number of launches of the job that were denied in a row.
        pause_s: seconds until the job is launched again.
        over: whether a launch of the job has succeeded since.
    """

    lacks: MissingPermission
    at: datetime
    launches: int = 1
    over: bool = False
    pause_s: int = 0


@frozen_dataclass()
class FirstEnd:
    """The first rank that ended in an attempt in which at most half of the ranks ended by themselves."""

    attempt: int
    rank: int
    instance_id: str


@frozen_dataclass()
class Suspicion:
    """An instance that the evidence of the job's attempts names, although no check found a fault on it.

    Either it is a repeat offender, repaired because attempts of the job ended there first. Or a certain diagnosis or a
    sign of a fault named it (`named`), and its check passed, so it was not repaired.

    Attributes:
        attempt: the last attempt that counted against the instance.
        rank: the job's rank on the instance.
        lasted: a stable run has followed since.
        proved: the instance took part in a stable run.
        elsewhere: the instance on which the same rank ended first later, evidence against the program; "" for none.
        named: a diagnosis or a sign of a fault named the instance, and no repair followed.
        passed: the check of a named instance has found no fault. False: the result is not known, or is a fault.
    """

    attempt: int
    rank: int
    instance_id: str
    lasted: bool = False
    proved: bool = False
    elsewhere: str = ""
    named: bool = False
    passed: bool = False

    @property
    def stands(self) -> bool:
        """Whether the suspicion still stands: no later run has exonerated the instance, and no fault was found."""
        return not self.proved and not self.elsewhere and (self.passed or not self.named)


@frozen_dataclass()
class WarmSpare:
    """A container of the job that waits on an instance for a rank of a later attempt, see `warm_spares.py`.

    Attributes:
        number: the rank that its task carries: above all ranks of the gang, and never used again within the job.
        attempt: the attempt during which it was started. Its task and its claim carry this attempt.
        epoch: the epoch of the instance when it was offered.
        task_id: its ECS task; "" before the task is known.
        runs: whether its container runs.
        leaves: whether it is being ended.
        taken_by: the attempt that was placed on it; 0 while it waits.
    """

    instance_id: str
    number: int
    attempt: int
    epoch: int
    task_id: str = ""
    runs: bool = False
    leaves: bool = False
    taken_by: int = 0

    @property
    def waits(self) -> bool:
        """Whether it waits, or will wait, for a rank."""
        return not (self.leaves or self.taken_by)


@frozen_dataclass()  # without slots, so that it is copied fast, see `core/state_machine.py`
class ListedJob:
    """The record of a job without its commands and its history, as lists of jobs hold it.

    `instances` are those of the current or last attempt, in rank order.
    """

    job_id: str
    spec: JobSpec
    queued_at: datetime
    status_at: datetime
    status: JobStatus = JobStatus.QUEUED
    reason: str = ""
    version: int = 1
    """Number of decisions. Command ids and the scheduler's answers refer to it."""
    revision: int = 0
    """Number of writes, maintained by the store. A write based on an older revision is rejected."""
    attempt: int = 0
    origin: Origin = Origin.SUBMITTED
    hands_off: bool = False
    """Whether the job was adopted to be observed: it is recorded and reported, never stopped or relaunched."""
    launched: bool = False
    """Whether every rank of the current attempt has its ECS task."""
    launch_ended: bool = False
    """Whether the launch of the current attempt is over, successful or not. Later events about the launch are
    outdated."""
    started_by_person: bool = False
    """Whether a user started the tasks of the current attempt. Such tasks do not carry our `startedBy`."""
    attempts_counted: int = 0
    attempts_uncounted: Mapping[str, int] = field(default_factory=dict)
    instances: tuple[str, ...] = ()
    repairing: tuple[str, ...] = ()
    """Instances under repair that the job waits for."""
    repaired: Mapping[str, bool] = field(default_factory=dict)
    """Whether each repair that ended during the checks healed the instance, by instance id."""
    stop_purpose: StopPurpose | None = None
    """What follows after every rank has ended; None while no stop is ordered."""
    stop_cause: CloseCause | None = None
    """The uncounted cause of the stop; None if there is none."""
    stop_tries: int = 0
    """Number of times that the present stop, or the suspend grace, has exceeded its timeout."""
    holding: bool = False
    """Whether the present stop ends only the processes, so that the containers may be used by the next attempt."""
    held_attempt: int = 0
    """The last attempt whose processes have ended while containers were kept; 0: none."""
    let_go: tuple[str, ...] = ()
    """Instances of the last attempt that the next does not take over: their containers are not used again, or ECS
    refused a rank there."""
    ranks_in_place: int = 0
    """Number of ranks of the current attempt that were placed on a container of an earlier attempt or a warm spare."""
    spares: tuple[WarmSpare, ...] = ()
    """The warm spares whose end is not known, also those that an attempt has taken."""
    spares_started: int = 0
    """Number of warm spares that were started for the job."""
    spares_after: datetime | None = None
    """Time before which no warm spare is started, because one has ended unused; None: there is no such time."""
    claims_kept: bool = False
    """Whether the job ended while the end of some ranks was not confirmed. The instances of these ranks stay claimed
    until their end is confirmed."""
    adopted_after: datetime | None = None
    """Time of the job's end before its user started it again. Tasks created earlier belong to a run that is over."""
    stop_reason: str = ""
    """Why the current attempt's gang was stopped. It stays unchanged while `reason` describes the later steps."""
    failure: RankFailure | None = None
    incident_id: str | None = None
    incident_at: datetime | None = None
    """Start of the current incident: its gang was ordered to stop, or had ended, by a failure or a loss of capacity.
    None again when the job runs, or when a user has ended it."""
    recovery_since: datetime | None = None
    """Time since which operators know of the recovery that the open incident is about. None if no recovery is open.
    A further failure in the same incident sends no message of its own."""
    blamed: tuple[str, ...] = ()
    """Instances that a check or a diagnosis found faulty in the open recovery, at most `BLAMED_MAX`."""
    running_at: datetime | None = None
    """Start of the run of the current attempt."""
    quick_ends: int = 0
    """Number of attempts in a row that ended before a stable run. From the second on, each lengthens the cool-down
    before the next attempt."""
    not_before: datetime | None = None
    """End of the cool-down: the next attempt is not placed before this time."""
    silent: tuple[str, ...] = ()
    """Instances with a missing heartbeat of their rank, while the job is LOST because of them."""
    found_dead: tuple[str, ...] = ()
    """Instances with a missing heartbeat that the last poll found dead. An instance in doubt then and found dead again
    counts as dead."""
    heard: Mapping[str, datetime] = field(default_factory=dict)
    """Last confirmed life of the rank of the current attempt, by instance, for instances that ever had a missing
    heartbeat. A timeout that began earlier is over, and an earlier heartbeat is outdated."""
    forced_at: datetime | None = None
    """Time of the last forced cancellation by a user. The same request delivered twice acts once."""
    to_leave: tuple[str, ...] = ()
    """Instances that the current attempt was asked to leave, if it is only observed."""
    repairs: int = 0
    """Number of instances that were repaired, or checked in the background, for this job. A stable run resets the
    number if the policy says `stable_run_resets_attempts`."""
    unchecked: int = 0
    """The last attempt after which the job continued without a check of its gang; 0 after a check or a stable run."""
    unexplained: int = 0
    """Failures without a faulty instance after which the job continued without a check of its gang, since the last
    check or stable run."""
    checks_without_fault: int = 0
    """Checks of the gang since the last stable run that found no faulty instance, without one between that did."""
    check_if_unused: str = ""
    """The instance on which the gang failed first. It is checked if the next attempt runs without it; "" for none."""
    hang_stops: int = 0
    """Number of stops of the gang for a hang that are not forgotten."""
    hangs_confirmed: int = 0
    """Number of those stops that lengthen no progress timeout, because the activity of the ranks confirmed the hang."""
    hang_run_s: int = 0
    """Longest run in seconds that was stopped for such a hang."""
    hang_attempt: int = 0
    """The last attempt that was stopped for a hang, unless the fault of an instance explains the hang."""
    hang_is_confirmed: bool = False
    """Whether that stop is one of `hangs_confirmed`."""
    hang_progress: int | None = None
    """Furthest progress value at a stop for a hang; None if there was no stop, or no value."""
    hang_run_before_s: int = 0
    """`hang_run_s` before that stop."""
    calm_s: int = 0
    """Seconds of the stable runs since the last stop for a hang, without those of `calm_attempt`."""
    calm_attempt: int = 0
    """The last attempt with a stable run since that stop; 0 for none. `calm_run_s` is its run in seconds."""
    calm_run_s: int = 0
    hang_told_at: datetime | None = None
    """Time at which operators were last notified of a hang that the node agents show; None: never."""
    first_ends: tuple[FirstEnd, ...] = ()
    """The first rank to end in each of the last attempts, unless a cause is known; the latest last."""
    suspicions: tuple[Suspicion, ...] = ()
    """The instances that were repaired as repeat offenders, and those that were named and passed their check."""
    conclusion: DiagnosisResult | None = None
    """The last diagnosis result, which names its attempt."""
    heard_again: int = 0
    """The last attempt for which evidence was collected a second time, because its checks had found nothing."""
    verdicts: tuple[PastDiagnosis, ...] = ()
    """Outcomes of the diagnoses of earlier attempts, as far as they are known; the latest last."""
    verdict_open: DiagnosisResult | None = None
    """The diagnosis before the last, while only the running checks can show its outcome."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Instances that the last failures exclude, with the rank of each. They are used last, until a stable run."""
    avoided: tuple[FirstEnd, ...] = ()
    """Instances that were left out before a stable run in which they took no part, the latest last. They are used
    last, until a stable run with them."""
    held: bool = False
    """Whether a user has suspended the job: it is not placed until a user resumes it."""
    wished_at: datetime | None = None
    """Time of the last suspend or resume request of a user. The same request delivered twice acts once."""
    suspended_for: str = ""
    """The job that preempted this job last; "" if a user or the job itself asked for the suspension."""
    suspended_at: datetime | None = None
    suspensions: tuple[datetime, ...] = ()
    """Times at which the job was preempted, as far as they still protect it."""
    short_of: str = ""
    """The last rejection reason of the scheduler (`queue.snapshot.RejectionKind`)."""
    narrow_since: datetime | None = None
    """Since when an elastic job that waits could start on fewer than its largest number of instances; None: it never
    could."""
    refused: Mapping[str, datetime] = field(default_factory=dict)
    """Instances on which ECS refused a rank of an elastic job, each with the time, at most `REFUSED_MAX`."""
    passed_since: datetime | None = None
    """Since when the job could have started without the jobs that passed it in the queue; None if it never could."""
    denied: DeniedLaunch | None = None
    """The last launch that AWS denied for lack of a permission; None if there was none."""
    ran_s: int = 0
    """Seconds that the earlier attempts ran, in total."""
    quota_nodes: int = 0
    """Number of instances that the job uses of its user's quota. The store counts them in the same write."""
    deadline_at: datetime | None = None
    """Time at which the present status times out; None: never."""
    look_at: datetime | None = None
    """Time of the next poll; None: never."""
    limit_at: datetime | None = None
    """Time at which a limit of the recovery contract passes; None if none can pass, or operators know."""
    downtime: Downtime | None = None
    """The open downtime, or the last one; None if the job was never down."""
    lost_s: Mapping[str, int] = field(default_factory=dict)
    """Seconds of all downtimes that are over, with the work that was done again, by cause (`downtime.LossCause`)."""
    in_line_at: datetime | None = None
    """Start of the present wait in the queue, from which `queue_timeout_s` counts. None: the wait began at `queued_at`.
    The queue order always follows `queued_at`."""

    @property
    def width(self) -> int:
        """The number of ranks of the current or last attempt; before the first attempt, the largest number."""
        is_elastic = self.spec.nnodes_min is not None
        return len(self.instances) if is_elastic and self.instances else self.spec.nnodes

    @property
    def began_by(self) -> datetime | None:
        """A time by which the current attempt had begun: that of its run, or of its failure or stop if it never ran."""
        return self.running_at or (self.failure.at if self.failure is not None else self.incident_at)

    @property
    def is_down(self) -> bool:
        """Whether an incident or a downtime is open: the training has not gone on since the last failure."""
        return self.incident_id is not None or (self.downtime is not None and self.downtime.is_open)

    @property
    def quota_key(self) -> str:
        """The key of the quota that the job uses: its user, the requested priority and its group."""
        return QuotaKey(self.spec.user, self.spec.priority, self.spec.group).text

    @property
    def next_run_at(self) -> datetime | None:
        """The earliest time of the next attempt if the job waits for a cool-down; None otherwise."""
        return self.not_before if self.status in WAITING and not self.held else None

    @property
    def diagnosed(self) -> DiagnosisResult | None:
        """The diagnosis result of the current or last attempt, or None."""
        return self.conclusion if self.conclusion is not None and self.conclusion.attempt == self.attempt else None

    def is_observed(self, policy: RecoveryPolicy) -> bool:
        """Return whether this job or, by the policy, every job is only observed.

        An observed job is recorded and reported. It is never stopped or relaunched for a failure.
        """
        return self.hands_off or policy.observe_only

    def attempts_max(self, policy: RecoveryPolicy) -> int:
        """Return the upper bound of counted attempts of this job."""
        return self.spec.attempts_max or policy.attempts_max

    def attempts_left(self, policy: RecoveryPolicy) -> bool:
        """Return whether another attempt is allowed after the current one is counted."""
        return self.attempts_counted + 1 < self.attempts_max(policy)


@frozen_dataclass()  # without slots, as its base
class Job(ListedJob):
    """The record of a job."""

    commands: tuple[PendingCommand, ...] = ()
    history: tuple[HistoryEntry, ...] = ()
