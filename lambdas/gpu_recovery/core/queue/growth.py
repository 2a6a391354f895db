"""Growth: running elastic jobs that continue on more instances, because GPUs are free that no waiting job can use."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime

from gpu_recovery.core.queue.group_queue import GroupQueue
from gpu_recovery.core.queue.quota_admission import QuotaAdmission
from gpu_recovery.core.queue.snapshot import NEEDS_NO_HOSTS, Growth, Host, Rejection, RunningJob, SpareRecall
from gpu_recovery.core.queue.width import is_avoided


def growths(queues: Mapping[str, GroupQueue], quota: QuotaAdmission, now: datetime) -> Iterator[Growth | SpareRecall]:
    """Yield the job of each group that grows now, or the warm spares that give way to it first.

    At most one job of a group grows at a time, because nothing is reserved for a job that grows.

    Args:
        queues: the queues of the groups in which no job needs hosts, after every waiting job was admitted or rejected.
        quota: the quotas, after the pass.
        now: the time of the pass.
    """
    for _, queue in sorted(queues.items()):
        if not any(job.growing for job in queue.forecast.running):
            yield from _first(queue, quota, now)


def groups_in_need(rejections: Iterable[Rejection]) -> set[str]:
    """Return the groups in which a job waits for hosts. No running job of such a group grows."""
    return {rejection.group for rejection in rejections if rejection.short_of not in NEEDS_NO_HOSTS}


def may_grow(running: Iterable[RunningJob], now: datetime) -> Collection[str]:
    """Return the groups with a job that may grow now."""
    return {job.group for job in running if job.grows_at is not None and job.grows_at <= now}


def _first(queue: GroupQueue, quota: QuotaAdmission, now: datetime) -> Iterator[Growth | SpareRecall]:
    """Yield the growth of the first job, by priority and queue time, that can have more instances."""
    due = (job for job in queue.forecast.running if job.grows_at is not None and job.grows_at <= now)
    for job in sorted(due, key=lambda job: (-job.priority, job.queued_at, job.job_id)):
        most = min(job.nodes_max - job.nodes, quota.left((job.user, job.asked, job.group)))
        if most <= 0:
            continue
        room = {*queue.hosts.open.fitting(job.gpus), *job.ready}
        more = min(most, sum(_suits(queue, host_id, job) for host_id in room))
        if more > 0:
            yield Growth(job.job_id, job.version, job.attempt, job.nodes + more)
            return
        recalls = _recalls(queue, job, most)
        if recalls:
            yield from recalls
            return


def _recalls(queue: GroupQueue, job: RunningJob, most: int) -> list[SpareRecall]:
    """Return the jobs whose warm spares give way, so that `job` can have up to `most` more instances.

    They have at most its priority. Those of the lowest priority come first.
    """
    recalls: list[SpareRecall] = []
    owners = (owner for owner in queue.forecast.running if owner.spares and owner.job_id != job.job_id)
    for owner in sorted(owners, key=lambda owner: (owner.priority, owner.job_id)):
        if owner.priority > job.priority or most <= 0:
            break
        gained = sum(_suits(queue, host_id, job, coming=owner.gpus) for host_id in owner.spares)
        if gained:
            recalls.append(SpareRecall(owner.job_id, job.job_id))
            most -= gained
    return recalls


def _suits(queue: GroupQueue, host_id: str, job: RunningJob, coming: int | None = None) -> bool:
    """Return whether the job may grow onto the host of this id.

    Args:
        queue: the queue of the group.
        host_id: the host.
        job: the job.
        coming: GPUs that a warm spare releases there; None if the job can have the host now.
    """
    host = queue.hosts.hosts.get(host_id)
    if host is None or not host.usable or not may_take(host, job):
        return False
    return coming is None or host.free + coming >= job.gpus


def may_take(host: Host, job: RunningJob) -> bool:
    """Return whether the job may grow onto the host once enough of its GPUs are free."""
    return host.host_id not in job.hosts and not is_avoided(host, job.avoids)
