"""Events of the job state machine: frozen facts, with the time and the attempt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime

from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.job.diagnosis_result import DiagnosisResult
from gpu_recovery.core.lazy_dataclass import frozen_dataclass
from gpu_recovery.core.missing_permission import MissingPermission
from gpu_recovery.core.passive_evidence import PassiveEvidence
from gpu_recovery.core.task import RankFailure


@frozen_dataclass()
class Checked:
    """Check result of one instance of an attempt, and whether the instance is under repair because of it."""

    outcome: CheckOutcome
    summary: str
    repairing: bool = False


@frozen_dataclass(kw_only=True)
class JobEvent:
    """A fact about `attempt` of a job."""

    at: datetime
    attempt: int


@frozen_dataclass(kw_only=True)
class JobPlaced(JobEvent):
    """The scheduler placed the attempt after `attempt` on `instances` (in rank order), from record `version`."""

    version: int
    instances: tuple[str, ...]
    epochs: tuple[int, ...]
    port_offset: int = 0
    is_probe: bool = False
    """The launch is a probe: it tries whether a missing permission has been granted."""
    term: int | None = None
    """Term of the scheduler. Once a later term has begun, decisions of this term are not saved."""
    counts: bool = False
    """The number of running jobs is limited. The placement is remembered for passes that read an outdated index."""


@frozen_dataclass(kw_only=True)
class ResourcesShort(JobEvent):
    """The scheduler, from record `version`, rejected the job for now; `sentence` says what is missing.

    short_of: kind of the rejection (`queue.snapshot.RejectionKind`). The event is sent again only if it changed.
    passed_since: since when the job could have started without the jobs that passed it. The first time is recorded.
    narrow_since: since when an elastic job could have started with less than its largest width, which is recorded once.
    """

    version: int
    sentence: str
    short_of: str = ""
    passed_since: datetime | None = None
    narrow_since: datetime | None = None


@frozen_dataclass(kw_only=True)
class AttemptLaunched(JobEvent):
    """Every rank of the attempt has its ECS task. `ends_hold`: the launch ended a launch hold of the queue."""

    ends_hold: bool = False


@frozen_dataclass(kw_only=True)
class LaunchRefused(JobEvent):
    """ECS definitely refused a rank, or an instance was no longer free; `lasting` if a retry does not help.

    lacks:      the permission that the deployment lacks, if ECS refused for that; None otherwise.
    is_told:    operators have been notified of this missing permission for another attempt.
    pause_s:    seconds until a launch that needs the permission is tried again.
    authorized: ECS refused every refused rank for another reason, so the deployment lacks no permission.
    instances:  the instances on which no rank starts, if the others are claimed; () in an event of an older release.
    """

    sentence: str
    lasting: bool = False
    lacks: MissingPermission | None = None
    is_told: bool = False
    pause_s: int = 0
    authorized: bool = False
    instances: tuple[str, ...] = ()


@frozen_dataclass(kw_only=True)
class NewerTaskSeen(JobEvent):
    """A user started tasks of an adopted job again after the job had ended."""

    created_at: datetime


@frozen_dataclass(kw_only=True)
class AllRanksRunning(JobEvent):
    """The task of every rank is or was running."""


@frozen_dataclass(kw_only=True)
class RankFailed(JobEvent):
    """A rank of the attempt failed; `failure` is the first failure of the attempt."""

    failure: RankFailure


@frozen_dataclass(kw_only=True)
class AllRanksStopped(JobEvent):
    """The end of every rank is confirmed; `failure` is the first failure, None if all ranks succeeded.

    own_ends: number of ranks that failed without having been stopped, 0 if not counted.
    """

    failure: RankFailure | None = None
    own_ends: int = 0


@frozen_dataclass(kw_only=True)
class AllRanksHeld(JobEvent):
    """The process of every rank has ended, and at least one container is held: it waits for the next attempt.

    failure: the first failure of the attempt.
    own_ends: number of ranks that failed without having been stopped.
    without_evidence: the evidence of the attempt was collected, and shows no cause.
    """

    failure: RankFailure | None = None
    own_ends: int = 0
    without_evidence: bool = False


@frozen_dataclass(kw_only=True)
class Diagnosed(JobEvent):
    """The reports and logs of the attempt were diagnosed (`core.diagnosis`)."""

    conclusion: DiagnosisResult


@frozen_dataclass(kw_only=True)
class PassiveEvidenceCollected(JobEvent):
    """The reports of the node agents since the failure of the attempt were collected (`core.passive_evidence`).

    conclusion: the undecided diagnosis result of an attempt whose ranks are held; None if the job has it already.
    """

    evidence: PassiveEvidence
    conclusion: DiagnosisResult | None = None


@frozen_dataclass(kw_only=True)
class ProgressStopped(JobEvent):
    """No rank of the attempt makes progress, although all ranks run and send heartbeats; `sentence` says since when.

    since: time of the last progress; None if it is not known.
    progress: the furthest progress value of a rank, as a whole number; None if no rank reports progress.
    confirmed: whether the activity of every rank shows a hang, too.
    """

    sentence: str
    since: datetime | None = None
    progress: int | None = None
    confirmed: bool = False


@frozen_dataclass(kw_only=True)
class TrainingContinued(JobEvent):
    """The training of a relaunched attempt has gone on, so its recovery has succeeded; `sentence` says how we know.

    kept_until: time up to which the work of the former attempts was kept, so that the later work is done again; None if
        it is not known.
    trained_at: time of the first report of progress of the attempt; the start of its run, if it reports none. None: as
        `at`.
    """

    sentence: str
    kept_until: datetime | None = None
    trained_at: datetime | None = None


@frozen_dataclass(kw_only=True)
class InstancesChecked(JobEvent):
    """Every instance of the attempt has a check result, so the barrier ends; `results` are by instance id.

    heard_again: whether the event follows a second collection of the evidence of the attempt.
    """

    results: Mapping[str, Checked]
    heard_again: bool = False


@frozen_dataclass(kw_only=True)
class RepairEnded(JobEvent):
    """The repair of an instance of the attempt ended: proved and healthy (`healed`), or it will not come back.

    gone: whether the instance is off or left the cluster, so that all its ranks have certainly ended.
    by_operator: whether an operator quarantined the instance during its repair. EC2 may still carry out the reboot.
    """

    instance_id: str
    healed: bool
    sentence: str
    gone: bool = False
    by_operator: bool = False


@frozen_dataclass(kw_only=True)
class NamedInstancePassed(JobEvent):
    """The check of an instance that the evidence of the attempt names has found no fault; `sentence` is its result.

    The job does not wait for this check, so the event is often about an earlier attempt.
    """

    instance_id: str
    sentence: str


@frozen_dataclass(kw_only=True)
class InstanceNeedsRepair(JobEvent):
    """An instance of the attempt needs a check or repair for a reason that is not from this job."""

    instance_id: str
    sentence: str


@frozen_dataclass(kw_only=True)
class InstanceLeaving(JobEvent):
    """An instance of the attempt will be interrupted: Spot interruption, retirement or maintenance."""

    instance_id: str
    sentence: str


@frozen_dataclass(kw_only=True)
class RankSilent(JobEvent):
    """The heartbeat of the rank on this instance timed out; it was last seen at `seen_at`. `sentence` is for users."""

    instance_id: str
    seen_at: datetime
    sentence: str


@frozen_dataclass(kw_only=True)
class RankHeard(JobEvent):
    """The rank on this instance was seen again; `at` is the time of that heartbeat."""

    instance_id: str


@frozen_dataclass(kw_only=True)
class RankExited(JobEvent):
    """The agent of this instance reported the end of its rank. The cause of the end comes from ECS."""

    instance_id: str
    sentence: str


@frozen_dataclass(kw_only=True)
class StallReported(JobEvent):
    """The rank on this instance has shown no work for `unchanged_s` seconds: too long.

    A process of it has reported the same progress, or, with `is_quiet`, its agent sees no work of a rank that reports
    no progress. Whether the whole gang hangs is asked afterwards. With `is_early` only a confirmed hang is long enough.
    """

    instance_id: str
    unchanged_s: float
    is_quiet: bool = False
    is_early: bool = False


@frozen_dataclass(kw_only=True)
class HangSuspected(JobEvent):
    """The node agents of all ranks show a hang of a job that reports no progress. It began at `since`.

    instance_id: the instance of the one rank that differs from the others; "" for none.
    """

    sentence: str
    since: datetime
    instance_id: str = ""


@frozen_dataclass(kw_only=True)
class CancelRequested(JobEvent):
    """The user `by` asked to end the job; with `force`, the node agents end the ranks, too."""

    by: str
    force: bool = False


@frozen_dataclass(kw_only=True)
class SuspendRequested(JobEvent):
    """A suspension of the job was requested, for the job `for_job` or by the user `by`. The job keeps its queue time.

    version: record version that the scheduler read, None for a request of a user.
    """

    by: str
    because: str = ""
    for_job: str = ""
    version: int | None = None


@frozen_dataclass(kw_only=True)
class GrowRequested(JobEvent):
    """The scheduler has found free instances for an elastic job, which could have `width` instances then.

    version: record version that the scheduler read.
    """

    version: int
    width: int


@frozen_dataclass(kw_only=True)
class ResumeRequested(JobEvent):
    """The user `by` asked to resume a job that a user suspended."""

    by: str


@frozen_dataclass(kw_only=True)
class JobLookDue(JobEvent):
    """The poll of the job in ECS is due (`look_at`)."""

    look_at: datetime


@frozen_dataclass(kw_only=True)
class RecoveryLimitPassed(JobEvent):
    """The limit `limit_at` of the recovery contract has passed while the job is down."""

    limit_at: datetime


@frozen_dataclass(kw_only=True)
class JobDeadlineReached(JobEvent):
    """The status reached its deadline `deadline_at`.

    unconfirmed: instances of the ranks that are not known to have ended.
    results:     the available check results by instance id.
    dead:        for a LOST job, instances with a missing heartbeat that ECS or EC2 finds dead, each with the evidence.
    unsure:      instances of `dead` with a disconnected ECS agent as the only evidence. An ECS agent disconnects by
        itself several times an hour.
    deaf:        why missing heartbeats have no consequence now (reporting outage), "" if they have.
    under_way:   instances of the attempt at which a reboot, a health check or a repair that the job waits for goes on,
        or is blocked for now.
    withheld:    for a STOPPING job, instances of `unconfirmed` that are not rebooted now, each with the reason.
    """

    deadline_at: datetime
    unconfirmed: tuple[str, ...] = ()
    results: Mapping[str, Checked] = field(default_factory=dict)
    dead: Mapping[str, str] = field(default_factory=dict)
    unsure: tuple[str, ...] = ()
    deaf: str = ""
    under_way: tuple[str, ...] = ()
    withheld: Mapping[str, str] = field(default_factory=dict)


@frozen_dataclass(kw_only=True)
class SparesOffered(JobEvent):
    """The scheduler has found idle instances for warm spares of the job. `epochs` are those of the instances."""

    instances: tuple[str, ...]
    epochs: tuple[int, ...]


@frozen_dataclass(kw_only=True)
class SparesRecalled(JobEvent):
    """Another job waits for GPUs or can grow, so the job releases its warm spares. `sentence` says which job."""

    sentence: str


@frozen_dataclass(kw_only=True)
class SpareSeen(JobEvent):
    """The task of the warm spare `number` is known; `runs`: its container runs. It is about any attempt."""

    number: int
    task_id: str
    runs: bool = False


@frozen_dataclass(kw_only=True)
class SpareEnded(JobEvent):
    """The container of the warm spare `number` has ended, or was never started. It is about any attempt."""

    number: int
    sentence: str


JOB_EVENTS: tuple[type[JobEvent], ...] = (
    JobPlaced,
    ResourcesShort,
    AttemptLaunched,
    LaunchRefused,
    NewerTaskSeen,
    AllRanksRunning,
    RankFailed,
    AllRanksStopped,
    AllRanksHeld,
    Diagnosed,
    PassiveEvidenceCollected,
    ProgressStopped,
    TrainingContinued,
    InstancesChecked,
    RepairEnded,
    NamedInstancePassed,
    InstanceNeedsRepair,
    InstanceLeaving,
    RankSilent,
    RankHeard,
    RankExited,
    StallReported,
    HangSuspected,
    SparesOffered,
    SparesRecalled,
    SpareSeen,
    SpareEnded,
    CancelRequested,
    SuspendRequested,
    GrowRequested,
    ResumeRequested,
    JobLookDue,
    RecoveryLimitPassed,
    JobDeadlineReached,
)
"""All events of a job, in the order of a job's life."""
