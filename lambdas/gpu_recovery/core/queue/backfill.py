"""Phase 5, EASY backfill: start jobs behind the head of a queue without delaying it.

The head, the first job that does not fit, is promised hosts. A job behind it may start if it ends before the head
starts, or if it uses hosts outside the promise (Lifka 1995; Mu'alem and Feitelson 2001).

The head has a slack: other jobs may delay it by a share of its waiting time. What counts is the time at which the head
could start without the jobs that passed it. `passing_window_s` has the rule. So as long as the bounds of the run times
hold, a head starts by the time first promised to it plus this share of its wait, however many jobs pass it.

Three bounds of a run time say whether a job ends in time. By the median of its kind many jobs pass the head, and half
of them may delay it. By the 90th percentile one in ten may. By the user's limit none does. `bound_for` chooses the
bound: the longer the head has waited, and the larger it is, the less is risked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import NamedTuple

from gpu_recovery.core.policy import PERCENT_MAX, RecoveryPolicy
from gpu_recovery.core.queue.host_selection import HostPool
from gpu_recovery.core.queue.release_forecast import NEVER, ReleaseForecast
from gpu_recovery.core.queue.snapshot import Host, Reservation, RunningJob, WaitingJob


class RunTimeBound(Enum):
    """The bound of a run time by which a job may pass the head of the queue. The user's limit bounds each."""

    MEDIAN = auto()  # half of the jobs of its kind did not take longer
    P90 = auto()  # nine of ten did not
    LIMIT = auto()  # the job is stopped then


def bound_for(waited_s: float, gpus: int, policy: RecoveryPolicy) -> RunTimeBound:
    """Return the bound by which jobs may pass a head.

    Args:
        waited_s: seconds since the first submission of the head.
        gpus: all GPUs of the head.
        policy: `backfill_median_s` and `backfill_estimates_gpu_s`.
    """
    if waited_s * gpus >= policy.backfill_estimates_gpu_s:
        return RunTimeBound.LIMIT
    return RunTimeBound.P90 if waited_s >= policy.backfill_median_s else RunTimeBound.MEDIAN


class HeadDelay(NamedTuple):
    """What is known of the delay of a head by the jobs that passed it.

    starts_in: seconds until the head can start by the expected ends of all running jobs; `NEVER` if unknown.
    alone_in:  the same without the jobs that passed it; 0 if it could start now.
    waited_s:  seconds that the head has waited.
    delayed_s: seconds since the head could first have started without the jobs that passed it; 0 if it never could.
    """

    starts_in: float
    alone_in: float
    waited_s: float
    delayed_s: float


def passing_window_s(head: HeadDelay, bound: RunTimeBound, share: float) -> float:
    """Return the seconds within which a job that passes the head must end; negative if no job may pass it.

    Before the head could start without the jobs that passed it, another one must end by that time plus the slack. From
    that time on the end of the slack is fixed. Then a job must end by it, or before the jobs that passed already, so
    that the delay does not grow from one job to the next. With the bound `LIMIT` it must end before them in any case.

    Args:
        head: the delay of the head.
        bound: the bound of run times by which jobs may pass it.
        share: share of its waiting time by which the head may be delayed.
    """
    if head.alone_in == NEVER:
        return -1.0
    slack_s = share * (head.waited_s - head.delayed_s)
    before_others_s = min(head.starts_in, head.alone_in + slack_s)
    if head.alone_in > 0:
        return before_others_s if bound is RunTimeBound.LIMIT else head.alone_in + slack_s
    if head.starts_in == NEVER:
        before_others_s = -1.0
    return before_others_s if bound is RunTimeBound.LIMIT else max(slack_s - head.delayed_s, before_others_s)


def waits_since(job: WaitingJob) -> datetime:
    """Return since when the job waits: its first submission, or its last suspension."""
    return job.queued_at if job.suspended_at is None else max(job.queued_at, job.suspended_at)


def passers(head: WaitingJob, running: Iterable[RunningJob]) -> frozenset[str]:
    """Return the running jobs that passed the head: submitted after it, of no higher priority, started as it waited."""
    since, place = waits_since(head), (head.queued_at, head.job_id)
    return frozenset(
        job.job_id
        for job in running
        if job.since >= since and job.priority <= head.priority and (job.queued_at, job.job_id) > place
    )


class BackfillWindow:
    """The hosts that are promised to a waiting head, and the test for jobs that may use them before it.

    A new window removes its hosts from the open and the leaving hosts of `pool`. If jobs may pass the head, the free
    hosts among them become backfill hosts of `pool`.

    passed_since: since when the head could have started without the jobs that passed it; None if it never could.
    delaying:     the jobs that passed the head, if it could start now without them; otherwise empty.
    """

    def __init__(self, job: WaitingJob, pool: HostPool, forecast: ReleaseForecast, policy: RecoveryPolicy) -> None:
        self.job = job
        self.bound = bound_for((pool.at - job.queued_at).total_seconds(), job.nodes * job.gpus, policy)
        hosts, self._starts_in = _promised(job, pool, forecast)
        passed_by = passers(job, forecast.running)
        alone_in = _promised(job, pool, forecast, passed_by)[1] if passed_by else self._starts_in
        self.delaying = passed_by if alone_in <= 0 else frozenset[str]()
        self.passed_since = job.passed_since or (pool.at if self.delaying else None)
        waited_s = (pool.at - waits_since(job)).total_seconds()
        delayed_s = 0.0 if self.passed_since is None else (pool.at - self.passed_since).total_seconds()
        delay = HeadDelay(self._starts_in, alone_in, waited_s, delayed_s)
        self._window_s = passing_window_s(delay, self.bound, policy.backfill_slack_percent / PERCENT_MAX)
        at = None if self._starts_in == NEVER else pool.at + timedelta(seconds=self._starts_in)
        self.reservation = Reservation(job.job_id, job.group, tuple(sorted(hosts)), at)
        for host_id in hosts:
            pool.leaving.pop(host_id, None)
            free = pool.open.discard(host_id)
            if free and self._window_s >= 0:
                pool.backfill_hosts.add(host_id, free)

    def admits(self, job: WaitingJob) -> bool:
        """Return whether the job ends in time, so that it may use the promised hosts."""
        return self._bounded_s(job) <= self._window_s

    def leaves_quota(self, job: WaitingJob) -> bool:
        """Return whether the job may use the quota that is kept for the head: it ends before the head can start."""
        return self._bounded_s(job) <= min(self._starts_in, self._window_s)

    def _bounded_s(self, job: WaitingJob) -> float:
        """Return the bound of the run time by which the job may pass, in seconds; `NEVER` if unknown."""
        seconds = job.limit_s if self.bound is RunTimeBound.LIMIT else job.runs_for_s
        if self.bound is RunTimeBound.MEDIAN and job.median_s is not None:
            seconds = job.median_s
        return NEVER if seconds is None else seconds


def _promised(
    job: WaitingJob, pool: HostPool, forecast: ReleaseForecast, without: Collection[str] = ()
) -> tuple[list[str], float]:
    """Return the hosts that the job is promised, and the seconds until all of them are free for it.

    No host is promised that needs an operator, or that another job has for itself without an end.

    Args:
        without: running jobs that count as ended.
    """
    available = [
        (_free_in(host, job, pool, forecast, without), -pool.free_for(host_id, job), host_id)
        for host_id, host in pool.hosts.items()
        if host.counts and host.gpus >= job.gpus and host_id not in pool.held and not _is_of_another(host, job, pool)
    ]
    return promise(available, job.nodes)


def _is_of_another(host: Host, job: WaitingJob, pool: HostPool) -> bool:
    """Return whether the host is reserved for another job, and no time says until when."""
    return pool.owner(host) not in ("", job.job_id) and host.reserved_until is None


def promise(available: Iterable[tuple[float, int, str]], nodes: int) -> tuple[list[str], float]:
    """Choose the `nodes` hosts that are free first.

    The free hosts are kept for the head, and the hosts that fit soonest are left to drain. The textbook promises the
    hosts that come free last and lends out the free hosts. But users request several times the run time that their jobs
    need. So the head could start long before the textbook's time, if the free hosts were kept for it (docs/queue.md has
    the figures).

    Args:
        available: each host that could serve the head: (seconds until free for the head, negated number of GPUs free
            now, host id).
        nodes: the number of hosts that the head needs.

    Returns:
        (host ids, seconds until the last of them is free). The seconds are `NEVER` without an estimate.
    """
    first = sorted(available)[:nodes]
    starts_at = first[-1][0] if len(first) == nodes else NEVER
    return [host_id for _, _, host_id in first], starts_at


def _free_in(
    host: Host, job: WaitingJob, pool: HostPool, forecast: ReleaseForecast, without: Collection[str] = ()
) -> float:
    """Return the seconds until the host is free for the job; `NEVER` without an estimate, or for a leaving host."""
    if not host.usable or host.leaves_at is not None:
        return NEVER
    free_in = forecast.free_in(host.host_id, pool.free_for(host.host_id, job), job.gpus, without)
    if pool.owner(host) in ("", job.job_id):
        return free_in
    free_in = forecast.free_in(host.host_id, host.free, job.gpus, without)
    assert host.reserved_until is not None  # else it is not promised
    return max(free_in, (host.reserved_until - pool.at).total_seconds())
