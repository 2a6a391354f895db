"""The record of one job: its statuses, its causes, its fields. What moves it is in `state_machine.py`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from gpu_recovery.core.job.diagnosis_result import DiagnosisResult, PastDiagnosis
from gpu_recovery.core.job.spec import JobSpec
from gpu_recovery.core.policy import RecoveryPolicy
from gpu_recovery.core.queue.quota import QuotaKey
from gpu_recovery.core.state_machine import HistoryEntry, PendingCommand
from gpu_recovery.core.task import RankFailure


class JobStatus(StrEnum):
    """What a job waits for."""

    QUEUED = "QUEUED"  # its turn
    PENDING_RESOURCES = "PENDING_RESOURCES"  # GPUs
    SUBMITTING = "SUBMITTING"  # every rank to be launched
    SUBMITTED = "SUBMITTED"  # every rank to run
    RUNNING = "RUNNING"  # the ranks to end
    LOST = "LOST"  # a heartbeat, an end, or what ECS and EC2 make of the silence
    SUSPENDING = "SUSPENDING"  # rank 0 to save and leave, or its grace to end
    SUSPENDED = "SUSPENDED"  # its turn again, where it stood in line; or a person
    STOPPING = "STOPPING"  # the confirmed end of every rank
    DIAGNOSING = "DIAGNOSING"  # the health check of every instance
    RECOVERING = "RECOVERING"  # healthy instances: rebooted or spare
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELED = "CANCELED"


TERMINAL = frozenset({JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.CANCELED})
WAITING = (JobStatus.RECOVERING, JobStatus.QUEUED, JobStatus.PENDING_RESOURCES, JobStatus.SUSPENDED)
"""The statuses the scheduler places from; a recovering gang goes before its equals in the queue."""
LIVE = frozenset(
    {
        JobStatus.SUBMITTING,
        JobStatus.SUBMITTED,
        JobStatus.RUNNING,
        JobStatus.LOST,
        JobStatus.SUSPENDING,
        JobStatus.STOPPING,
    }
)
"""The statuses in which ranks of the current attempt may exist."""
RUNS = (JobStatus.RUNNING, JobStatus.LOST, JobStatus.SUSPENDING)
"""The statuses in which its ranks are taken to work."""
PLACED = (*sorted(LIVE), JobStatus.DIAGNOSING, JobStatus.RECOVERING)
"""The statuses in which a job takes up its user's quota: it has instances, or goes on with the next ones it gets."""


class Origin(StrEnum):
    """How a job came to us."""

    SUBMITTED = "SUBMITTED"
    ADOPTED = "ADOPTED"


class StopPurpose(StrEnum):
    """What follows once every rank has ended."""

    DIAGNOSE = "DIAGNOSE"
    RELAUNCH = "RELAUNCH"
    SUSPEND = "SUSPEND"
    FAIL = "FAIL"
    CANCEL = "CANCEL"


class CloseCause(StrEnum):
    """Why an attempt closed, as far as its count goes."""

    APPLICATION = "APPLICATION"
    HARDWARE = "HARDWARE"
    INCONCLUSIVE = "INCONCLUSIVE"
    INSUFFICIENT_RESOURCES = "INSUFFICIENT_RESOURCES"
    INTERRUPTED = "INTERRUPTED"
    REPAIR = "REPAIR"  # an instance of it had to be repaired for somebody else's sake
    SUSPENDED = "SUSPENDED"  # it asked for its own suspension


UNCOUNTED = frozenset(
    {CloseCause.INSUFFICIENT_RESOURCES, CloseCause.INTERRUPTED, CloseCause.REPAIR, CloseCause.SUSPENDED}
)


@dataclass(frozen=True, slots=True)
class FirstEnd:
    """The end that brought an attempt down, where one rank ended and the others were stopped for it."""

    attempt: int
    rank: int
    instance_id: str


@dataclass(frozen=True, slots=True)
class Suspicion:
    """An instance repaired because the job's attempts ended there first, as `rank`, though no check found anything.

    attempt: the last one that spoke of it.
    lasted: an attempt has lasted since; proved: one that it took part in.
    elsewhere: where the same rank has ended first after that, which speaks for the program; "" nowhere.
    """

    attempt: int
    rank: int
    instance_id: str
    lasted: bool = False
    proved: bool = False
    elsewhere: str = ""

    @property
    def stands(self) -> bool:
        """Whether nothing has spoken for the instance since."""
        return not self.proved and not self.elsewhere


@dataclass(frozen=True, slots=True)
class Job:
    """The record of one job. `instances` are those of the current or last attempt, in rank order."""

    job_id: str
    spec: JobSpec
    queued_at: datetime
    status_at: datetime
    status: JobStatus = JobStatus.QUEUED
    reason: str = ""
    version: int = 1
    """Counts decisions: command ids and the scheduler's answers are tied to it."""
    revision: int = 0
    """Counts writes, and belongs to the store: a writer who read an older one is refused."""
    attempt: int = 0
    origin: Origin = Origin.SUBMITTED
    hands_off: bool = False
    """Adopted to be observed: recorded and reported, never stopped or relaunched."""
    launched: bool = False
    """Every rank of the current attempt has its ECS task."""
    launch_ended: bool = False
    """The launch of the current attempt is over, well or not: whatever is said of it again is old."""
    started_by_person: bool = False
    """The tasks of the current attempt are a person's: they carry no `startedBy` of ours."""
    attempts_counted: int = 0
    attempts_uncounted: Mapping[str, int] = field(default_factory=dict)
    instances: tuple[str, ...] = ()
    repairing: tuple[str, ...] = ()
    repaired: Mapping[str, bool] = field(default_factory=dict)
    stop_purpose: StopPurpose | None = None
    stop_cause: CloseCause | None = None
    stop_tries: int = 0
    claims_kept: bool = False
    """It ended while the end of some rank was not confirmed: those instances stay claimed until it is."""
    adopted_after: datetime | None = None
    """A person started it anew after this time: tasks created before belong to a run that is over."""
    stop_reason: str = ""
    """Why the current attempt's gang was stopped, kept while the record's reason goes on to say what is done."""
    failure: RankFailure | None = None
    incident_id: str | None = None
    incident_at: datetime | None = None
    """When the incident began that the job is in: its gang was ordered to stop, or had ended, by a failure or because
    capacity was taken away. None again once it runs, or a person has ended it."""
    running_at: datetime | None = None
    """Since when the current attempt runs."""
    quick_ends: int = 0
    """How many attempts in a row ended before they had lasted: each makes the pause before the next longer."""
    not_before: datetime | None = None
    """A cool-down: the next attempt is not placed before this time."""
    silent: tuple[str, ...] = ()
    """Instances whose rank used to be heard of and is not any more, while the job is LOST for them."""
    found_dead: tuple[str, ...] = ()
    """Of those the ones found dead at the last look: who was in doubt then, and is found so again, is dead."""
    heard: Mapping[str, datetime] = field(default_factory=dict)
    """By instance, up to when its rank of the current attempt is known to have lived, where it was ever silent: a
    silence that began before is over, and a heartbeat from before it is old."""
    forced_at: datetime | None = None
    """When a person last wanted it ended by force: the same wish delivered twice is obeyed once."""
    to_leave: tuple[str, ...] = ()
    """Instances that the current attempt, which is only observed, was asked to leave."""
    repairs: int = 0
    """Instances that were repaired for this job."""
    first_ends: tuple[FirstEnd, ...] = ()
    """Which rank ended first in its last attempts, as far as nothing has explained it; the latest last."""
    suspicions: tuple[Suspicion, ...] = ()
    """The instances that were repaired for that."""
    conclusion: DiagnosisResult | None = None
    """The last diagnosis, which names the attempt that it is about."""
    heard_again: int = 0
    """The last attempt whose witnesses were heard a second time, because its checks had found nothing."""
    verdicts: tuple[PastDiagnosis, ...] = ()
    """How the diagnoses of its attempts turned out, as far as that is known; the latest last."""
    verdict_open: DiagnosisResult | None = None
    """The diagnosis before the last, while only the checks can tell how it turned out."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Instances that a diagnosis leaves out, with the rank of each: used last, until an attempt has lasted."""
    held: bool = False
    """A person has suspended it: it is not placed until a person resumes it."""
    wished_at: datetime | None = None
    """When a person last wanted it suspended or resumed: the same wish delivered twice is obeyed once."""
    suspended_for: str = ""
    """The job that it was last made to give way to; "" if that was a person's wish, or its own."""
    suspended_at: datetime | None = None
    suspensions: tuple[datetime, ...] = ()
    """When it had to give way to others, as far as that still protects it."""
    short_of: str = ""
    """What it was last found to be short of (`queue.snapshot.Shortage`)."""
    ran_s: int = 0
    """How long its former attempts ran, all together."""
    quota_nodes: int = 0
    """How many instances it takes up of its user's quota; the store counts them in the same write."""
    deadline_at: datetime | None = None
    look_at: datetime | None = None
    in_line_at: datetime | None = None
    """When it got in line again after an attempt; None as long as it stands where it was submitted."""
    commands: tuple[PendingCommand, ...] = ()
    history: tuple[HistoryEntry, ...] = ()

    @property
    def quota_key(self) -> str:
        """Whose quota it takes up: of its user, at the priority asked for, in its group."""
        return QuotaKey(self.spec.user, self.spec.priority, self.spec.group).text

    @property
    def next_run_at(self) -> datetime | None:
        """When it is tried again at the earliest, where the clock and not only room is waited for; None otherwise."""
        return self.not_before if self.status in WAITING and not self.held else None

    @property
    def diagnosed(self) -> DiagnosisResult | None:
        """The conclusion on the current or last attempt; None if there is none."""
        return self.conclusion if self.conclusion is not None and self.conclusion.attempt == self.attempt else None

    def is_observed(self, policy: RecoveryPolicy) -> bool:
        """Whether it is recorded and reported, never stopped or relaunched for a failure: it alone, or everything."""
        return self.hands_off or policy.observe_only

    def attempts_max(self, policy: RecoveryPolicy) -> int:
        """How many counted attempts this job may have."""
        return self.spec.attempts_max or policy.attempts_max

    def attempts_left(self, policy: RecoveryPolicy) -> bool:
        """Whether another attempt may follow once the current one is counted."""
        return self.attempts_counted + 1 < self.attempts_max(policy)
