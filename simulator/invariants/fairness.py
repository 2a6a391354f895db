"""Invariant I10: a waiting job keeps its place in the queue, also over a suspension, and does not wait in vain.

`overtaken` checks the result of `place` on the state before each pass of the scheduler. No job is placed before a job
that is ahead in the queue, asks for no more, and may start. The rules of the queue allow these exceptions:

- gangs that recover;
- jobs that are sure to end before the first job of the queue can start (backfill);
- jobs for which other jobs were preempted;
- jobs of users with free quota, while the user of the job ahead has none.

`FairnessCheck` finds jobs that are first in the queue and would fit, but are not started for longer than a pass takes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from gpu_recovery.core.job.record import WAITING, JobStatus, ListedJob
from gpu_recovery.core.policy import RecoveryPolicy, duration
from gpu_recovery.core.queue import place
from gpu_recovery.core.queue.ordering import queue_position_key
from gpu_recovery.core.queue.priority import effective
from gpu_recovery.core.queue.quota import QuotaKey, parse_key, parse_limits
from gpu_recovery.core.queue.snapshot import Host, Snapshot, WaitingJob
from gpu_recovery.ports.store import Store
from gpu_recovery.recovery import Recovery
from gpu_recovery.scheduler import schedule

from simulator.invariants import quotas
from simulator.world_view import WorldView

WAIT_MAX = timedelta(minutes=10)
"""Upper bound of the wait of a first job that fits: twice the time by which an idle pass may put off the next."""
IN_TURN = (JobStatus.QUEUED, JobStatus.PENDING_RESOURCES, JobStatus.SUSPENDED)
"""Statuses of queued jobs that have no right to be placed before others."""


def overtaken(recovery: Recovery, store: Store) -> Iterator[str]:
    """Yield a sentence for each job that is placed before a job that is ahead of it. Only reads `store`."""
    policy, now = recovery.policy, recovery.clock()
    if len(store.jobs_in(WAITING, 2)) < 2:
        return  # a single job cannot be overtaken
    snapshot = _snapshot(recovery, store)
    if len(snapshot.waiting) < 2:
        return
    placed = {entry.job_id: entry.instances for entry in place.place(snapshot, policy, now).assignments}
    jobs = {job.job_id: job for job in store.list_jobs(None, quotas.JOBS_MAX, None).jobs}
    hosts = {host.host_id: host for host in snapshot.hosts}
    run_times = {entry.job_id: (entry.median_s, entry.runs_for_s, entry.limit_s) for entry in snapshot.waiting}
    barred = _barred(store, jobs.values())
    for first in (jobs[entry.job_id] for entry in snapshot.waiting if entry.job_id not in placed):
        if first.status not in IN_TURN or first.job_id in barred or not _may_start(first, now):
            continue
        for job_id, instances in placed.items():
            other = jobs[job_id]
            if _is_ahead_of(first, other, policy, now) and not _may_pass(other, first, instances, hosts, run_times):
                yield f"I10: {job_id} gets a place before {first.job_id}, in line since {first.queued_at:%H:%M:%S}"


def _snapshot(recovery: Recovery, store: Store) -> Snapshot:
    return schedule.read_snapshot(replace(recovery, store=store))


def _is_ahead_of(first: ListedJob, other: ListedJob, policy: RecoveryPolicy, now: datetime) -> bool:
    """Return whether `first` is ahead of `other` in the queue of its group and asks for no more."""
    own_position, other_position = _queue_position(first, policy, now), _queue_position(other, policy, now)
    spec, wanted = first.spec, other.spec
    smaller = spec.width_min <= wanted.width_min and spec.gpus_per_node <= wanted.gpus_per_node
    return spec.group == wanted.group and smaller and own_position < other_position and other.status in IN_TURN


def _queue_position(job: ListedJob, policy: RecoveryPolicy, now: datetime) -> tuple[int, bool, datetime, str]:
    since = now - duration(policy.suspensions_window_s)
    gave_way = any(at > since for at in job.suspensions)
    return -effective(job.spec.priority, job.ran_s, policy), not gave_way, job.queued_at, job.job_id


def _may_pass(
    other: ListedJob,
    first: ListedJob,
    instances: Iterable[str],
    hosts: Mapping[str, Host],
    run_times: Mapping[str, tuple[int | None, ...]],
) -> bool:
    """Return whether `other` may be placed before `first`: on hosts reserved for it, or because it ends sooner."""
    has_reserved_host = any(hosts[host_id].reserved_for == other.job_id for host_id in instances)
    bounds = zip(run_times[first.job_id], run_times[other.job_id], strict=True)
    return has_reserved_host or any(
        other_bound is not None and (bound is None or other_bound < bound) for bound, other_bound in bounds
    )


def _barred(store: Store, jobs: Iterable[ListedJob]) -> set[str]:
    """Return the queued jobs that may be unable to start: the rest of a quota may be assigned to other jobs."""
    limits = parse_limits(store.load_limits()[0])
    candidates = [job for job in jobs if quotas.taken(job) or job.status in WAITING]
    barred: set[str] = set()
    for job in candidates:
        limit = limits.of(parse_key(job.quota_key))
        wanted = sum(other.spec.nnodes for other in candidates if other.quota_key == job.quota_key)
        jobs_max, jobs_max_per_user = limits.max_running_jobs, limits.max_running_jobs_per_user
        of_user = sum(other.spec.user == job.spec.user for other in candidates)
        over_jobs = (jobs_max is not None and len(candidates) > jobs_max) or (
            jobs_max_per_user is not None and of_user > jobs_max_per_user
        )
        if (limit is not None and wanted > limit) or over_jobs:
            barred.add(job.job_id)
    return barred


def _may_start(job: ListedJob, now: datetime) -> bool:
    return not job.held and (job.not_before is None or job.not_before <= now)


class FairnessCheck:
    """Records since when the first job of each group could have started."""

    def __init__(self, world: WorldView) -> None:
        self.world = world
        self._since: dict[str, datetime] = {}

    def check(self) -> Iterator[str]:
        """Yield a sentence for each job that waits in vain. Called each minute, when no transient fault strikes any
        more.
        """
        world, now = self.world, self.world.timeline.now
        able = set(self._able()) if world.asleep.get("scheduler", now) <= now else set()
        self._since = {job_id: self._since.get(job_id, now) for job_id in sorted(able)}
        for job_id, since in self._since.items():
            if now - since >= WAIT_MAX:
                yield f"I10: {job_id} stands first and fits since {since:%H:%M:%S}, and is not started"

    def _able(self) -> Iterator[str]:
        """Yield the first job of each group that no quota refuses, if enough hosts are free for it."""
        store = self.world.store
        if not store.jobs_in(WAITING, 1):
            return
        snapshot = _snapshot(self.world.recovery, store)
        holders = [job for job in self.world.jobs() if quotas.taken(job)]
        seen: set[str] = set()
        for job in sorted(snapshot.waiting, key=queue_position_key):
            if job.group in seen or (not job.holds_quota and _is_refused(store, job, holders)):
                continue
            seen.add(job.group)
            free = [
                host
                for host in snapshot.hosts
                if host.usable
                and host.group == job.group
                and host.free >= job.gpus
                and host.reserved_for in ("", job.job_id)
                and host.leaves_at is None
            ]
            if len(free) >= job.nodes and not job.own_only:
                yield job.job_id


def _is_refused(store: Store, job: WaitingJob, holders: Collection[ListedJob]) -> bool:
    """Return whether a limit refuses the start of the job now. The instances of all placed jobs count."""
    limits = parse_limits(store.load_limits()[0])
    key = QuotaKey(job.user, job.asked, job.group)
    limit, used = limits.of(key), sum(quotas.taken(holder) for holder in holders if holder.quota_key == key.text)
    jobs_max, jobs_max_per_user = limits.max_running_jobs, limits.max_running_jobs_per_user
    of_user = [holder for holder in holders if holder.spec.user == job.user]
    return (
        (limit is not None and used + job.nodes > limit)
        or (jobs_max is not None and len(holders) >= jobs_max)
        or (jobs_max_per_user is not None and len(of_user) >= jobs_max_per_user)
    )
