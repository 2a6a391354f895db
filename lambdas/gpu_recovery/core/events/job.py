"""The events of the job state machine: frozen, in the past tense, with the time and the attempt they are about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.job.diagnosis_result import DiagnosisResult
from gpu_recovery.core.task import RankFailure


@dataclass(frozen=True, slots=True)
class Checked:
    """What the check of one instance of an attempt said, and whether the instance is being repaired for it."""

    outcome: CheckOutcome
    summary: str
    repairing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvent:
    """A fact about `attempt` of a job."""

    at: datetime
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlaced(JobEvent):
    """The scheduler found `instances` (in rank order) for the attempt after `attempt`, reading record `version`."""

    version: int
    instances: tuple[str, ...]
    epochs: tuple[int, ...]
    port_offset: int = 0
    term: int | None = None
    """The scheduler's term: once another has begun, what this one decided is not kept any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourcesShort(JobEvent):
    """The scheduler, reading record `version`, found no place; `sentence` says what is missing.

    short_of: the same in a word (`queue.snapshot.Shortage`): a job is told again only when that has changed.
    """

    version: int
    sentence: str
    short_of: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptLaunched(JobEvent):
    """Every rank of the attempt has its ECS task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRefused(JobEvent):
    """ECS definitely refused a rank, or an instance was no longer free. `lasting`: trying again will not help."""

    sentence: str
    lasting: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSeen(JobEvent):
    """A task that a person started showed itself as `rank` of an adopted job, holding `gpus` of the instance."""

    rank: int
    instance_id: str
    gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NewerTaskSeen(JobEvent):
    """A person started tasks of an adopted job anew after it had ended."""

    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class AllRanksRunning(JobEvent):
    """Every rank's task is or was running."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFailed(JobEvent):
    """The first rank of the attempt that did not succeed."""

    failure: RankFailure


@dataclass(frozen=True, slots=True, kw_only=True)
class AllRanksStopped(JobEvent):
    """Every rank's end is confirmed; `failure` is the first that did not succeed, None if all did.

    own_ends: how many ranks did not succeed without having been stopped; 0 where nobody counted.
    """

    failure: RankFailure | None = None
    own_ends: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosed(JobEvent):
    """What the reports and logs of the attempt come to (`core.diagnosis`)."""

    conclusion: DiagnosisResult


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressStopped(JobEvent):
    """Every rank of the attempt runs, its machines are heard of, and none gets on: `sentence` says since when."""

    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InstancesChecked(JobEvent):
    """Every instance of the attempt has its check's result, by instance id: the barrier is down.

    heard_again: it is told after the witnesses of the attempt were to be heard a second time.
    """

    results: Mapping[str, Checked]
    heard_again: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairEnded(JobEvent):
    """An instance of the attempt came back proved and healthy, or will not come back by itself.

    gone: its machine is off or has left, and every rank of it has certainly ended.
    """

    instance_id: str
    healed: bool
    sentence: str
    gone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceNeedsRepair(JobEvent):
    """An instance of the attempt must be checked or repaired, for a reason that is not this job's."""

    instance_id: str
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceLeaving(JobEvent):
    """An instance of the attempt is about to be taken away: Spot, retirement, maintenance."""

    instance_id: str
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSilent(JobEvent):
    """The rank on this instance, which was heard of until `seen_at`, is not any more; `sentence` says so to people."""

    instance_id: str
    seen_at: datetime
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RankHeard(JobEvent):
    """The rank on this instance is heard of again; `at` is when it was, not when somebody tells of it."""

    instance_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RankExited(JobEvent):
    """The agent of this instance says that its rank has ended; only ECS knows who ended it, and why."""

    instance_id: str
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequested(JobEvent):
    """A person wants the job ended. `by` says who; `force`: through the agents of its instances, too."""

    by: str
    force: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SuspendRequested(JobEvent):
    """The job is to give up its instances and keep its place in line: for the job `for_job`, or because `by` wants it.

    The scheduler decides so from record `version`; a person has read none.
    """

    by: str
    because: str = ""
    for_job: str = ""
    version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeRequested(JobEvent):
    """A person wants the job that was suspended by a person to go on. `by` says who."""

    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLookDue(JobEvent):
    """It is time to compare the job with what ECS says."""

    look_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDeadlineReached(JobEvent):
    """The status waited until `deadline_at` in vain.

    `unconfirmed` are the instances whose rank is not known to have ended, `results` the checks that are in. Of a job
    that is LOST, `dead` says which silent instances ECS or EC2 finds dead, and by which words; `unsure` are those of
    them against whom nothing speaks but that the agent of ECS is not connected, which happens of itself several times
    an hour; `deaf` is why no silence counts at this time ("" if it does).
    """

    deadline_at: datetime
    unconfirmed: tuple[str, ...] = ()
    results: Mapping[str, Checked] = field(default_factory=dict)
    dead: Mapping[str, str] = field(default_factory=dict)
    unsure: tuple[str, ...] = ()
    deaf: str = ""


JOB_EVENTS: tuple[type[JobEvent], ...] = (
    JobPlaced,
    ResourcesShort,
    AttemptLaunched,
    LaunchRefused,
    RankSeen,
    NewerTaskSeen,
    AllRanksRunning,
    RankFailed,
    AllRanksStopped,
    Diagnosed,
    ProgressStopped,
    InstancesChecked,
    RepairEnded,
    InstanceNeedsRepair,
    InstanceLeaving,
    RankSilent,
    RankHeard,
    RankExited,
    CancelRequested,
    SuspendRequested,
    ResumeRequested,
    JobLookDue,
    JobDeadlineReached,
)
"""Every event of a job, in the order of a job's life."""
