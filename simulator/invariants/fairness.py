"""I10: who waits keeps the place in line, over suspension as over everything else, and nobody waits for nothing.

`overtaken` judges what `place` answers to what is so before each pass of the scheduler. In words: no job is given a
place before another that stands before it, asks for no more, and may start. What may go before it is what the rules of
the queue let go: gangs that recover, jobs that are sure to end before the head of the line can start, jobs for which
room was made, and those whose users have not used up their quota while its user has.

`TimeBudget` watches who stands first and would fit: whoever does for longer than any pass takes is waited upon in vain.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from gpu_recovery.core.job.record import WAITING, Job, JobStatus
from gpu_recovery.core.policy import RecoveryPolicy, within
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
"""Twice as long as a pass may be put off by one that found nothing to do."""
IN_TURN = (JobStatus.QUEUED, JobStatus.PENDING_RESOURCES, JobStatus.SUSPENDED)
"""The statuses of jobs in line that have nothing to go before others with."""


def overtaken(recovery: Recovery, store: Store) -> Iterator[str]:
    """Who is given a place that another should have had first. Reads `store`, and so disturbs nobody."""
    policy, now = recovery.policy, recovery.clock()
    if len(store.jobs_in(WAITING, 2)) < 2:
        return  # nobody can be overtaken
    snapshot = _snapshot(recovery, store)
    if len(snapshot.waiting) < 2:
        return
    given = {one.job_id: one.instances for one in place.place(snapshot, policy, now).assignments}
    jobs = {job.job_id: job for job in store.list_jobs(None, quotas.JOBS_MAX, None).jobs}
    hosts = {host.host_id: host for host in snapshot.hosts}
    lasts = {one.job_id: one.runs_for_s for one in snapshot.waiting}
    barred = _barred(store, jobs.values())
    for first in (jobs[one.job_id] for one in snapshot.waiting if one.job_id not in given):
        if first.status not in IN_TURN or first.job_id in barred or not _may_start(first, now):
            continue
        for job_id, instances in given.items():
            other = jobs[job_id]
            if _is_ahead_of(first, other, policy, now) and not _may_pass(other, first, instances, hosts, lasts):
                yield f"I10: {job_id} gets a place before {first.job_id}, in line since {first.queued_at:%H:%M:%S}"


def _snapshot(recovery: Recovery, store: Store) -> Snapshot:
    return schedule.read_snapshot(replace(recovery, store=store))


def _is_ahead_of(first: Job, other: Job, policy: RecoveryPolicy, now: datetime) -> bool:
    """Whether `first` stands before `other` in the line of its group, asking for no more."""
    mine, its = _standing(first, policy, now), _standing(other, policy, now)
    spec, wanted = first.spec, other.spec
    smaller = spec.nnodes <= wanted.nnodes and spec.gpus_per_node <= wanted.gpus_per_node
    return spec.group == wanted.group and smaller and mine < its and other.status in IN_TURN


def _standing(job: Job, policy: RecoveryPolicy, now: datetime) -> tuple[int, bool, datetime, str]:
    since = now - within(policy.suspensions_window_s)
    gave_way = any(at > since for at in job.suspensions)
    return -effective(job.spec.priority, job.ran_s, policy), not gave_way, job.queued_at, job.job_id


def _may_pass(
    other: Job, first: Job, instances: Iterable[str], hosts: Mapping[str, Host], lasts: Mapping[str, int | None]
) -> bool:
    """Whether `other` may go before one that stands before it: onto hosts kept for it, or because it ends sooner."""
    kept = any(hosts[one].reserved_for == other.job_id for one in instances)
    limit, its = lasts[first.job_id], lasts[other.job_id]
    return kept or (its is not None and (limit is None or its < limit))


def _barred(store: Store, jobs: Iterable[Job]) -> set[str]:
    """The jobs in line that perhaps may not start: others that wait may be promised what is left of a quota."""
    limits = parse_limits(store.load_limits()[0])
    every = [job for job in jobs if quotas.taken(job) or job.status in WAITING]
    found: set[str] = set()
    for job in every:
        limit = limits.of(parse_key(job.quota_key))
        wanted = sum(other.spec.nnodes for other in every if other.quota_key == job.quota_key)
        most, each = limits.max_running_jobs, limits.max_running_jobs_per_user
        of_user = sum(other.spec.user == job.spec.user for other in every)
        over_jobs = (most is not None and len(every) > most) or (each is not None and of_user > each)
        if (limit is not None and wanted > limit) or over_jobs:
            found.add(job.job_id)
    return found


def _may_start(job: Job, now: datetime) -> bool:
    return not job.held and (job.not_before is None or job.not_before <= now)


class FairnessCheck:
    """Remembers since when each job that stands first could have started."""

    def __init__(self, world: WorldView) -> None:
        self.world = world
        self._since: dict[str, datetime] = {}

    def check(self) -> Iterator[str]:
        """Who has waited for nothing, now that faults in passing have stopped. Asked every minute."""
        world, now = self.world, self.world.timeline.now
        able = set(self._able()) if world.asleep.get("scheduler", now) <= now else set()
        self._since = {job_id: self._since.get(job_id, now) for job_id in sorted(able)}
        for job_id, since in self._since.items():
            if now - since >= WAIT_MAX:
                yield f"I10: {job_id} stands first and fits since {since:%H:%M:%S}, and is not started"

    def _able(self) -> Iterator[str]:
        """Of each group the first in line that no quota stands against, if enough hosts are free for it."""
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


def _is_refused(store: Store, job: WaitingJob, holders: Collection[Job]) -> bool:
    """Whether a limit stands against the job's start as things are; the places of all who run are counted."""
    limits = parse_limits(store.load_limits()[0])
    key = QuotaKey(job.user, job.asked, job.group)
    limit, used = limits.of(key), sum(quotas.taken(one) for one in holders if one.quota_key == key.text)
    most, each = limits.max_running_jobs, limits.max_running_jobs_per_user
    of_user = [one for one in holders if one.spec.user == job.user]
    return (
        (limit is not None and used + job.nodes > limit)
        or (most is not None and len(holders) >= most)
        or (each is not None and len(of_user) >= each)
    )
