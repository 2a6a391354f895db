"""The line as it is kept: of each job that waits for a place or has one, what a pass of the scheduler reads of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from gpu_recovery.core.policy import RecoveryPolicy, within
from gpu_recovery.core.queue.priority import Priority, demotes_at, effective
from gpu_recovery.core.queue.quota import QuotaKey
from gpu_recovery.core.queue.run_time_estimates import JobKind
from gpu_recovery.core.queue.snapshot import RunningJob, WaitingJob

NOTHING: Mapping[JobKind, int] = {}
"""No kind of job is known to run for any time."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One job, in few words. Times that mean nothing in its status are None.

    waits:       it is in line; else it has its place.
    recovering:  its gang goes on with the instances that are left; `repairing`: some of them are being repaired.
    held:        a person has suspended it: it is in nobody's way and nobody is in its.
    works:       its ranks run, so that it could be asked to make room; `leaves`: it is ending.
    observed:    it is never stopped.
    placed_at:   since when it has its place, where its ranks do not run yet.
    workload:    what it does, where only that tells how long it runs: "" where its user names a limit.
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

    @property
    def quota_key(self) -> QuotaKey:
        """Whose quota it takes up, or would."""
        return QuotaKey(self.user, self.asked, self.group)

    @property
    def kind(self) -> JobKind | None:
        """Of which kind it is, whose run times are asked for its own; None where its user names a limit."""
        return JobKind(self.user, self.workload, self.nodes, self.gpus) if self.workload else None

    def lasts_s(self, usual: Mapping[JobKind, int]) -> int | None:
        """For how long its next attempt is taken to run, or its present one in all; None if nobody can tell.

        usual: how long jobs of a kind run.
        """
        if self.max_runtime_s is not None:
            return self.max_runtime_s
        known = usual.get(self.kind) if self.kind is not None else None
        return known - self.ran_s if known is not None and known > self.ran_s else None

    def may_start(self, now: datetime) -> bool:
        """Whether it may be given a place now, if there is one."""
        return self.waits and not self.held and (self.not_before is None or self.not_before <= now)

    def recent_preemptions(self, policy: RecoveryPolicy, now: datetime) -> int:
        """How often it had to make room within the time that protects it."""
        since = now - within(policy.suspensions_window_s)
        return sum(at > since for at in self.suspensions)


def waiting_job(
    entry: Entry, policy: RecoveryPolicy, now: datetime, usual: Mapping[JobKind, int] = NOTHING
) -> WaitingJob:
    """The entry of a job in line, as `place` reads it."""
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
        suspects=entry.suspects,
        own_only=entry.recovering and policy.relaunch_on_same_instances,
        repairing=entry.repairing,
        runs_for_s=entry.lasts_s(usual),
        holds_quota=entry.holds_quota,
        suspensions=entry.recent_preemptions(policy, now),
        suspended_at=entry.suspended_at,
    )


def running_job(
    entry: Entry, policy: RecoveryPolicy, now: datetime, usual: Mapping[JobKind, int] = NOTHING
) -> RunningJob:
    """The entry of a job that has its place, as `place` reads it."""
    since = entry.running_at or entry.placed_at
    ran_s = entry.ran_s + (max(0, int((now - entry.running_at).total_seconds())) if entry.running_at else 0)
    lasts_s = entry.lasts_s(usual)
    ends_at = since + timedelta(seconds=lasts_s) if lasts_s else None
    if entry.leaves:
        ends_at = max(now, entry.placed_at + within(policy.suspend_margin_s))
    return RunningJob(
        job_id=entry.job_id,
        version=entry.version,
        attempt=entry.attempt,
        user=entry.user,
        priority=effective(entry.asked, ran_s, policy),
        asked=entry.asked,
        group=entry.group,
        nodes=entry.nodes,
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
    )


@dataclass(frozen=True, slots=True)
class LastPass:
    """What the scheduler remembers of itself.

    term:     counts passes that began: what an earlier one has decided is not kept once the next has begun.
    at:       when the last pass that came to its end began; None before the first.
    next_at:  when the clock alone may change its answer; None: only an event does.
    waiting:  how many jobs were left in line.
    """

    term: int = 0
    at: datetime | None = None
    next_at: datetime | None = None
    waiting: int = 0
