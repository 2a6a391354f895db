"""Queue entry: the fields of a queued or placed job that a scheduler pass reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from datetime import datetime, timedelta
from typing import Any

from gpu_recovery.core.lazy_dataclass import frozen_dataclass
from gpu_recovery.core.policy import RecoveryPolicy, duration
from gpu_recovery.core.queue.priority import Priority, demotes_at, effective
from gpu_recovery.core.queue.quota import QuotaKey
from gpu_recovery.core.queue.run_time_estimates import JobKind, UsualRunTime
from gpu_recovery.core.queue.snapshot import RunningJob, WaitingJob

NO_RANK = -1
"""In `WaitingJob.suspects`: no rank is suspected. The job uses the instance last, and may give it any rank."""
REFUSED_FOR_S = 6 * 3600
"""Seconds for which a job does not grow onto an instance on which ECS refused one of its ranks."""
NOTHING: Mapping[Any, Any] = {}
"""The empty mapping: no usual run time is known, or no launch is denied."""


@frozen_dataclass()
class Entry:
    """A queued or placed job. Times without a meaning in the status of the job are None.

    waits:       the job is QUEUED, PENDING_RESOURCES, SUSPENDED or RECOVERING; otherwise it is placed.
    recovering:  the gang continues with its remaining instances; `repairing`: some of its instances are under repair.
    held:        a user suspended the job: it neither delays other jobs nor starts.
    works:       its ranks run, so it may be suspended for another job; `leaves`: it is ending.
    observed:    observe-only: the job is never stopped.
    asked:       the priority at submission.
    placed_at:   time at which the present status began.
    known_short: kind of the last rejection (`RejectionKind`), "" if none.
    fresh:       the job is QUEUED, so its record needs a first wait reason.
    suspects:    instances that the job uses last, in this order, each with the rank under which it was suspected.
    ran_s:       seconds that the job ran in all earlier runs.
    workload:    the kind of work, by which the run time is estimated; "" if it is not estimated.
    launching:   its launch has not been answered, or was denied and its gang is being stopped.
    denials:     number of its launches in a row that AWS denied for lack of a permission.
    lacks:       name of the missing permission; `lacks_everywhere`: every launch needs it.
    status:      the status of the job (`JobStatus`); "" in an entry of an older release.
    name:        the name that the user gave the job; "" without a name, and in an entry of an older release.
    in_place:    containers of its last attempt wait for the next; not those on the instances of `let_go`.
    passed_since: since when it could have started without the jobs that passed it in the queue.
    spares:      instances of its warm spares; `ready` are those on which a rank can start.
    nodes_min:   smallest number of instances of an elastic job, of which `nodes` is the largest; 0: a fixed number.
    narrow_since: since when an elastic job could have started with fewer instances than `nodes`.
    grows:       it leaves its ranks, or has left them, for an attempt of another width: it keeps its claims.
    narrow:      it runs on fewer instances than `nodes`; `growths`: how often it has grown since its last stable run.
    down:        its training has not gone on since its last failure.
    refused:     instances on which ECS refused a rank of an elastic job, each with the time.
    width_limit: largest width of the next attempt, if ECS refused a rank of the last; 0: `nodes`.
    asks_spares: number of warm spares that the job itself asks for; 0: none, or as many as the deployment says.
    """

    job_id: str
    version: int
    attempt: int
    user: str
    asked: Priority
    group: str
    nodes: int
    gpus: int
    queued_at: datetime
    placed_at: datetime
    waits: bool
    recovering: bool = False
    repairing: bool = False
    held: bool = False
    works: bool = False
    leaves: bool = False
    observed: bool = False
    known_short: str = ""
    fresh: bool = False
    instances: tuple[str, ...] = ()
    suspects: Mapping[str, int] = field(default_factory=dict)
    not_before: datetime | None = None
    suspended_at: datetime | None = None
    suspended_for: str = ""
    suspensions: tuple[datetime, ...] = ()
    ran_s: int = 0
    running_at: datetime | None = None
    max_runtime_s: int | None = None
    holds_quota: bool = False
    workload: str = ""
    task_definition: str = ""
    launching: bool = False
    denials: int = 0
    lacks: str = ""
    lacks_everywhere: bool = False
    status: str = ""
    name: str = ""
    in_place: bool = False
    let_go: tuple[str, ...] = ()
    passed_since: datetime | None = None
    spares: tuple[str, ...] = ()
    ready: tuple[str, ...] = ()
    asks_spares: int = 0
    nodes_min: int = 0
    narrow_since: datetime | None = None
    grows: bool = False
    narrow: bool = False
    growths: int = 0
    down: bool = False
    refused: Mapping[str, datetime] = field(default_factory=dict)
    width_limit: int = 0

    @property
    def kept(self) -> tuple[str, ...]:
        """Return the instances with GPUs that only this job may use again: its containers wait there, or it grows."""
        keeps = self.in_place or (self.grows and self.recovering)
        held = tuple(name for name in self.instances if name not in self.let_go) if keeps else ()
        return (*held, *self.ready) if self.recovering else held

    @property
    def width(self) -> int:
        """Return the number of instances that the job has; of a waiting job, the largest number that it asks for."""
        return len(self.instances) if self.nodes_min and not self.waits else self.nodes

    def avoids(self, policy: RecoveryPolicy, now: datetime) -> Mapping[str, datetime]:
        """Return the instances for which an elastic job does not become wider, each with a time.

        A repair with proof since this time makes the instance usable. They are instances that refused a rank lately
        and, for a growth within an unstable run, those that the job uses last.
        """
        avoided = {name: at for name, at in self.refused.items() if now < at + duration(REFUSED_FOR_S)}
        since = self.running_at
        if since is None or not (self.narrow or self.grows):
            return avoided
        until = self.placed_at if self.recovering else now
        if until < since + duration(policy.stable_run_s):
            avoided |= {name: since for name in self.suspects if name not in self.instances}
        return avoided

    def grows_at(self, policy: RecoveryPolicy) -> datetime | None:
        """Return from when the job may be relaunched on more instances; None if it may not."""
        is_stopped_never = self.observed or policy.observe_only
        if not self.narrow or self.down or is_stopped_never or self.growths >= policy.uncounted_relaunches_max:
            return None
        if self.running_at is None:
            return None
        return self.running_at + duration(policy.elastic_grow_every_s)

    @property
    def quota_key(self) -> QuotaKey:
        """Return the key of the quota that the job uses, or would use."""
        return QuotaKey(self.user, self.asked, self.group)

    @property
    def kind(self) -> JobKind | None:
        """Return the kind of the job for run time estimates; None if it has none."""
        return JobKind(self.user, self.workload, self.nodes, self.gpus) if self.workload else None

    def usual_s(self, usual: Mapping[JobKind, UsualRunTime]) -> UsualRunTime | None:
        """Return the usual run time of the kind of the job; None if unknown."""
        return usual.get(self.kind) if self.kind is not None else None

    def lasts_s(self, known_s: int | None, ran_for_s: int) -> int | None:
        """Return the expected run time in seconds; None if unknown.

        The time is that of the next attempt of a queued job, or of the whole present attempt of a placed job. The
        user's limit bounds the estimate, and is the estimate where nothing else is known. A job that has run longer
        than its kind tells nothing but its limit.

        Args:
            known_s: estimated run time of all attempts together; None if unknown.
            ran_for_s: the seconds that the job has run until now, in all its runs.
        """
        if known_s is None or known_s <= ran_for_s:
            return self.max_runtime_s
        left_s = known_s - self.ran_s
        return left_s if self.max_runtime_s is None else min(left_s, self.max_runtime_s)

    def ran_for_s(self, now: datetime) -> int:
        """Return the seconds that the job ran until `now`, in all its runs."""
        if self.waits or self.running_at is None:
            return self.ran_s
        return self.ran_s + max(0, int((now - self.running_at).total_seconds()))

    def may_start(self, now: datetime) -> bool:
        """Return whether the job may be placed now, if there is a place."""
        return self.waits and not self.held and (self.not_before is None or self.not_before <= now)

    def recent_preemptions(self, policy: RecoveryPolicy, now: datetime) -> int:
        """Return how often the job was suspended for others within `policy.suspensions_window_s`."""
        since = now - duration(policy.suspensions_window_s)
        return sum(at > since for at in self.suspensions)


def waiting_job(
    entry: Entry, policy: RecoveryPolicy, now: datetime, usual: Mapping[JobKind, UsualRunTime] = NOTHING
) -> WaitingJob:
    """Convert the entry of a queued job for `place`."""
    known = entry.usual_s(usual)
    refused = {name: NO_RANK for name in entry.refused if name not in entry.suspects}
    return WaitingJob(
        job_id=entry.job_id,
        version=entry.version,
        attempt=entry.attempt,
        user=entry.user,
        priority=effective(entry.asked, entry.ran_s, policy),
        asked=entry.asked,
        group=entry.group,
        nodes=entry.nodes,
        gpus=entry.gpus,
        queued_at=entry.queued_at,
        recovering=entry.recovering,
        last=entry.instances if entry.recovering else (),
        suspects={**entry.suspects, **refused} if refused else entry.suspects,
        own_only=entry.recovering and policy.relaunch_on_same_instances and not entry.grows,
        repairing=entry.repairing,
        runs_for_s=entry.lasts_s(known.p90_s if known is not None else None, entry.ran_s),
        median_s=entry.lasts_s(known.median_s, entry.ran_s) if known is not None else None,
        limit_s=entry.max_runtime_s,
        holds_quota=entry.holds_quota,
        suspensions=entry.recent_preemptions(policy, now),
        suspended_at=entry.suspended_at,
        task_definition=entry.task_definition,
        denials=entry.denials,
        passed_since=entry.passed_since,
        widths=(entry.nodes_min, entry.width_limit or entry.nodes) if entry.nodes_min else None,
        avoids=entry.avoids(policy, now) if entry.nodes_min else NOTHING,
        narrow_since=entry.narrow_since,
    )


def quota_keys(entries: Iterable[Entry]) -> set[QuotaKey]:
    """Return the keys of the quotas that the jobs use, or would use. There are far fewer keys than jobs."""
    return {QuotaKey(*key) for key in {(entry.user, entry.asked, entry.group) for entry in entries}}


def running_job(
    entry: Entry, policy: RecoveryPolicy, now: datetime, usual: Mapping[JobKind, UsualRunTime] = NOTHING
) -> RunningJob:
    """Convert the entry of a placed job for `place`."""
    since = entry.running_at or entry.placed_at
    known = entry.usual_s(usual)
    lasts_s = entry.lasts_s(known.p90_s if known is not None else None, entry.ran_for_s(now))
    ends_at = since + timedelta(seconds=lasts_s) if lasts_s else None
    if entry.leaves:
        ends_at = max(now, entry.placed_at + duration(policy.suspend_margin_s))
    return RunningJob(
        job_id=entry.job_id,
        version=entry.version,
        attempt=entry.attempt,
        user=entry.user,
        priority=effective(entry.asked, entry.ran_for_s(now), policy),
        asked=entry.asked,
        group=entry.group,
        nodes=entry.width,
        gpus=entry.gpus,
        hosts=tuple(dict.fromkeys(i for i in entry.instances if i)),
        since=since,
        queued_at=entry.queued_at,
        ends_at=ends_at,
        demotes_at=demotes_at(entry.asked, entry.ran_s, since, policy) if entry.works else None,
        suspensions=entry.recent_preemptions(policy, now),
        can_suspend=entry.works and not (entry.observed or policy.observe_only),
        leaving=entry.leaves,
        for_job=entry.suspended_for if entry.leaves else "",
        nodes_max=entry.nodes,
        grows_at=entry.grows_at(policy),
        growing=entry.grows,
        avoids=entry.avoids(policy, now),
        spares=entry.spares,
        ready=entry.ready,
    )


@frozen_dataclass()
class LastPass:
    """What the scheduler saves about its passes.

    term:     the number of passes that began. Decisions of an earlier term are refused once the next term has begun.
    at:       start time of the last pass that completed; None before the first.
    next_at:  next time at which a pass may decide otherwise without any event; None if only an event can change the
        decision.
    waiting:  the number of jobs that were left in the queue.
    leaves_places_since: time of the first pass since which each pass has left places to jobs on Ray; None if the last
        pass left none.
    """

    term: int = 0
    at: datetime | None = None
    next_at: datetime | None = None
    waiting: int = 0
    leaves_places_since: datetime | None = None
