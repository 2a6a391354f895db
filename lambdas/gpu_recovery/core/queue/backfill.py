"""Phase 5, EASY backfill: start jobs behind the head of a queue without delaying it.

The head, the first job that does not fit, is promised hosts. A job behind it may start if it ends before the head
starts, or if it uses hosts outside the promise. So no such job delays the head as long as the estimates hold (Lifka
1995; Mu'alem and Feitelson 2001).

Three bounds of a run time say whether a job ends in time. By the median of its kind many jobs pass the head, and half
of them may delay it. By the 90th percentile one in ten may. By the user's limit none does. `bound_for` chooses the
bound: the longer the head has waited, and the larger it is, the less is risked.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from enum import Enum, auto

from gpu_recovery.core.policy import RecoveryPolicy
from gpu_recovery.core.queue.host_selection import HostPool
from gpu_recovery.core.queue.release_forecast import NEVER, ReleaseForecast
from gpu_recovery.core.queue.snapshot import Host, Reservation, WaitingJob


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


class BackfillWindow:
    """The hosts that are promised to a waiting head, and the test for jobs that may use them before it.

    A new window removes its hosts from the open and the leaving hosts of `pool`. If the start of the head can be
    estimated, the free hosts among them become backfill hosts of `pool`.
    """

    def __init__(self, job: WaitingJob, pool: HostPool, forecast: ReleaseForecast, policy: RecoveryPolicy) -> None:
        self.job = job
        self.bound = bound_for((pool.at - job.queued_at).total_seconds(), job.nodes * job.gpus, policy)
        hosts, self._starts_in = _promised(job, pool, forecast)
        at = None if self._starts_in == NEVER else pool.at + timedelta(seconds=self._starts_in)
        self.reservation = Reservation(job.job_id, job.group, tuple(sorted(hosts)), at)
        for host_id in hosts:
            pool.leaving.pop(host_id, None)
            free = pool.open.discard(host_id)
            if free and at is not None:
                pool.backfill_hosts.add(host_id, free)

    def admits(self, job: WaitingJob) -> bool:
        """Return whether the job ends before the head starts, so that it may use the promised hosts."""
        if self.reservation.at is None:
            return False
        seconds = job.limit_s if self.bound is RunTimeBound.LIMIT else job.runs_for_s
        if self.bound is RunTimeBound.MEDIAN and job.median_s is not None:
            seconds = job.median_s
        return seconds is not None and seconds <= self._starts_in


def _promised(job: WaitingJob, pool: HostPool, forecast: ReleaseForecast) -> tuple[list[str], float]:
    """Return the hosts that the job is promised, and the seconds until all of them are free for it.

    No host is promised that needs an operator, or that another job has for itself without an end.
    """
    available = [
        (_free_in(host, job, pool, forecast), -pool.free_for(host_id, job), host_id)
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


def _free_in(host: Host, job: WaitingJob, pool: HostPool, forecast: ReleaseForecast) -> float:
    """Return the seconds until the host is free for the job; `NEVER` without an estimate, or for a leaving host."""
    if not host.usable or host.leaves_at is not None:
        return NEVER
    free_in = forecast.free_in(host.host_id, pool.free_for(host.host_id, job), job.gpus)
    if pool.owner(host) in ("", job.job_id):
        return free_in
    free_in = forecast.free_in(host.host_id, host.free, job.gpus)
    assert host.reserved_until is not None  # else it is not promised
    return max(free_in, (host.reserved_until - pool.at).total_seconds())
