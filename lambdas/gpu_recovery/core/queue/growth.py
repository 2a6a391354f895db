"""Growth: running elastic jobs that continue on more instances, because GPUs are free that no waiting job can use."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime

from gpu_recovery.core.queue.group_queue import GroupQueue
from gpu_recovery.core.queue.quota_admission import QuotaAdmission
from gpu_recovery.core.queue.snapshot import Growth, Host, Rejection, RejectionKind, RunningJob

_WAITS_FOR_HOSTS = (
    RejectionKind.GPUS,
    RejectionKind.HELD,
    RejectionKind.TURN,
    RejectionKind.OWN,
    RejectionKind.ROOM,
)
"""What a waiting job lacks if it has precedence over the growth of a running job."""


def growths(
    queues: Mapping[str, GroupQueue], rejections: Iterable[Rejection], quota: QuotaAdmission, now: datetime
) -> Iterator[Growth]:
    """Yield the job of each group that grows now. No job grows in a group in which a job waits for instances.

    At most one job of a group grows at a time, because nothing is reserved for a job that grows.

    Args:
        queues: the queues of the groups, after every waiting job was admitted or rejected.
        rejections: the jobs that wait.
        quota: the quotas, after the pass.
        now: the time of the pass.
    """
    waiting = {rejection.group for rejection in rejections if rejection.short_of in _WAITS_FOR_HOSTS}
    for group, queue in sorted(queues.items()):
        if group not in waiting and not any(job.growing for job in queue.forecast.running):
            yield from _first(queue, quota, now)


def may_grow(running: Iterable[RunningJob], now: datetime) -> Collection[str]:
    """Return the groups with a job that may grow now."""
    return {job.group for job in running if job.grows_at is not None and job.grows_at <= now}


def _first(queue: GroupQueue, quota: QuotaAdmission, now: datetime) -> Iterator[Growth]:
    """Yield the growth of the first job, by priority and queue time, that can have more instances."""
    due = (job for job in queue.forecast.running if job.grows_at is not None and job.grows_at <= now)
    for job in sorted(due, key=lambda job: (-job.priority, job.queued_at, job.job_id)):
        fitting = (queue.hosts.hosts[host_id] for host_id in queue.hosts.open.fitting(job.gpus))
        free = sum(_suits(host, job) for host in fitting)
        more = min(free, job.nodes_max - job.nodes, quota.left((job.user, job.asked, job.group)))
        if more > 0:
            yield Growth(job.job_id, job.version, job.attempt, job.nodes + more)
            return


def _suits(host: Host, job: RunningJob) -> bool:
    """Return whether the job may grow onto the free host."""
    if host.host_id in job.hosts:
        return False
    return host.host_id not in job.avoids or (host.healed_at is not None and host.healed_at > job.since)
