"""Facts the two machines are told: past tense, frozen, with the time they happened and what they are about.

Every event carries a fence, so that one that comes late or twice moves nothing: job events the attempt (and, where
the attempt alone does not tell them apart, the record version, deadline or look they were decided from), instance
events the ECS version, the check id or the deadline.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from .check import CheckOutcome, Verdict
from .job.conclusion import Conclusion
from .signals import DepartureKind, HealthKind, HealthStatus, MachineState
from .task import RankFailure


@dataclass(frozen=True, slots=True)
class Checked:
    """What the check of one instance of an attempt said, and whether the instance is being repaired for it."""

    outcome: CheckOutcome
    summary: str
    repairing: bool = False


# -- of a job ----------------------------------------------------------------------------------------------------------


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

    conclusion: Conclusion


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


# -- of an instance ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceEvent:
    """A fact about one EC2 instance."""

    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceObserved(InstanceEvent):
    """What ECS says of the container instance at its `ecs_version`: an event's detail or a fresh Describe."""

    ecs_version: int
    ecs_status: str
    agent_connected: bool
    container_instance_id: str
    gpus: int
    availability_zone: str = ""
    group: str = ""
    rack: str = ""
    gpus_free: int | None = None
    """How many ECS has left to give; None where it does not say."""
    looked: bool = False
    """From a fresh look of ours: worth thinking about even when ECS has nothing newer, because time has passed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRequested(InstanceEvent):
    """A job wants the instance of its ended `attempt` checked; `may_reboot` if a reboot may follow.

    awaited: the job waits for the answer. If not, the instance is checked for whoever works on it next.
    since: when the attempt began; what the machine logged before is about somebody else's work.
    suspect: the instance of the attempt that is repaired even if its check finds nothing, and `because` of what;
    `again`: it was before, and that has not helped.
    focus: the GPUs that a diagnosis suspects, as `<instance>/<its name>`.
    first: the instance on which the attempt ended first, "" where nobody can tell; `alone`: it had only one.
    """

    job_id: str
    attempt: int
    may_reboot: bool
    since: datetime | None = None
    suspect: str = ""
    because: str = ""
    again: bool = False
    focus: tuple[str, ...] = ()
    awaited: bool = True
    first: str = ""
    alone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckEnded(InstanceEvent):
    """The health check `check_id` ended with `verdict`; `at` is when ECS or, if that is earlier, its machine says."""

    check_id: str
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairRequested(InstanceEvent):
    """A rank of `attempt` cannot be stopped on this instance: only a reboot confirms its end.

    awaited: the job waits for that; if not, it is over, and the instance is kept for nobody.
    """

    job_id: str
    attempt: int
    sentence: str
    awaited: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class RebootUncertain(InstanceEvent):
    """Whoever asked for the reboot of `epoch` died: nobody knows whether EC2 heard it."""

    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairRefused(InstanceEvent):
    """EC2 will not reboot or replace the instance for the order of `epoch`, and `sentence` says why."""

    epoch: int
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairHeld(InstanceEvent):
    """Looked at afresh before acting on the order of `epoch`, the repair may not begin now; `sentence` says why."""

    epoch: int
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSeen(InstanceEvent):
    """A fresh look at EC2 shows the machine in `state`."""

    state: MachineState


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthReported(InstanceEvent):
    """Somebody who watches the instance says how it is; `since` orders what one `kind` of watcher says."""

    kind: HealthKind
    status: HealthStatus
    since: datetime
    sentence: str = ""
    xid: int | None = None
    """The XID that a GPU is impaired by, where the watcher gives one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceSilent(InstanceEvent):
    """The agent of the instance was last heard of at `seen_at`, too long ago.

    heard: the attempt of each job whose rank had been heard of there.
    """

    seen_at: datetime
    heard: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceHeard(InstanceEvent):
    """The agent of an instance that had been silent reports again; `at` is when it did, not when somebody tells of it.

    heard: the attempt of each job whose rank it reports.
    """

    heard: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceBooted(InstanceEvent):
    """Its agent reports another boot than before: it booted at `booted_at`, by the server's clock and its uptime.

    ended: the attempt of each job whose rank was heard of under the boot before, and has ended with it.
    sentence: what the kernel's log had said under the boot before, and nobody had been told; "" for nothing.
    """

    boot_id: str
    booted_at: datetime
    ended: Mapping[str, int] = field(default_factory=dict)
    sentence: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DepartureAnnounced(InstanceEvent):
    """EC2 says that the instance will be interrupted, retired, maintained or is likely to be; or that it will not.

    `source` tells announcements apart: the ARN of a Health event, the id of a scheduled event, or the kind itself.
    """

    kind: DepartureKind
    source: str
    leaves_at: datetime
    sentence: str
    called_off: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineRequested(InstanceEvent):
    """A person wants nothing more to be placed on the instance. `by` says who, `because` why."""

    by: str
    because: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseRequested(InstanceEvent):
    """A person vouches for a quarantined instance. `by` says who."""

    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceLookDue(InstanceEvent):
    """It is time to compare the instance with what ECS says."""

    look_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceDeadlineReached(InstanceEvent):
    """The status waited until `deadline_at` in vain."""

    deadline_at: datetime


JOB_EVENTS: tuple[type[JobEvent], ...] = (
    JobPlaced, ResourcesShort, AttemptLaunched, LaunchRefused, RankSeen, NewerTaskSeen, AllRanksRunning, RankFailed,
    AllRanksStopped, Diagnosed, ProgressStopped, InstancesChecked, RepairEnded, InstanceNeedsRepair, InstanceLeaving,
    RankSilent, RankHeard, RankExited, CancelRequested, SuspendRequested, ResumeRequested, JobLookDue,
    JobDeadlineReached,
)  # fmt: skip
INSTANCE_EVENTS: tuple[type[InstanceEvent], ...] = (
    InstanceObserved, MachineSeen, HealthReported, InstanceSilent, InstanceHeard, InstanceBooted, DepartureAnnounced,
    CheckRequested, CheckEnded, RepairRequested,
    RebootUncertain, RepairRefused, RepairHeld, QuarantineRequested, ReleaseRequested, InstanceLookDue,
    InstanceDeadlineReached,
)  # fmt: skip
