"""Placement on the Ray cluster: which queued jobs may start next.

`place` reads a single count of the GPUs and answers for every queued job. It counts as verl counts: the free
GPUs of all nodes together. The order is by priority, then first in, first out, all or nothing. The first job that does
not fit blocks the jobs behind it, because otherwise small jobs would pass a large job for ever. A job that exceeds the
whole cluster is skipped, because it would block the others in vain.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gpu_recovery.core.job.record import LIVE, Job, JobStatus
from gpu_recovery.core.job.spec import Backend

QUEUED_STATUSES = (JobStatus.QUEUED, JobStatus.PENDING_RESOURCES)
"""Statuses in which a job waits for GPUs of the cluster."""


def is_in_the_pool(job: Job) -> bool:
    """Return whether the job is on Ray and waits for GPUs or has them. A placement reads these jobs."""
    return job.spec.backend is Backend.RAY and (job.status in LIVE or job.status in QUEUED_STATUSES)


@dataclass(frozen=True, slots=True)
class PoolSnapshot:
    """The queued jobs, the jobs that hold GPUs of the cluster, and the GPUs of the cluster.

    Attributes:
        free: number of free GPUs by node, as Ray counts them.
        in_all: number of GPUs of the whole cluster, used or free.
    """

    waiting: tuple[Job, ...]
    live: tuple[Job, ...]
    free: Mapping[str, float]
    in_all: float


@dataclass(frozen=True, slots=True)
class PoolPlacement:
    """The admitted jobs in order, and the rejected jobs with a reason each. Every queued job is in one of the two."""

    admitted: tuple[Job, ...]
    rejected: tuple[tuple[Job, str], ...]


def place(snapshot: PoolSnapshot) -> PoolPlacement:
    """Return the placement for a snapshot. Pure.

    A driver takes its GPUs only when it runs, some time after its admission, and until then Ray counts them as free. So
    the GPUs of all our live jobs are subtracted from those of the cluster.
    """
    assigned = sum(_gpus(job) for job in snapshot.live)
    left = min(sum(snapshot.free.values()), snapshot.in_all - assigned)
    admitted: list[Job] = []
    rejected: list[tuple[Job, str]] = []
    blocked_by = ""
    for job in _queue(snapshot.waiting):
        wanted = _gpus(job)
        if wanted > snapshot.in_all:
            rejected.append((job, f"needs {wanted} GPUs; the Ray cluster has {snapshot.in_all:g} in all, used or free"))
        elif blocked_by:
            rejected.append((job, f"waits behind {blocked_by} for the Ray cluster"))
        elif wanted > left:
            rejected.append((job, f"needs {wanted} GPUs of the Ray cluster; {max(left, 0):g} are free"))
            blocked_by = job.job_id
        else:
            admitted.append(job)
            left -= wanted
    return PoolPlacement(tuple(admitted), tuple(rejected))


def _queue(jobs: Iterable[Job]) -> list[Job]:
    """Return the jobs in queue order."""
    return sorted(jobs, key=lambda job: (-job.spec.priority, job.queued_at, job.job_id))


def _gpus(job: Job) -> int:
    """Return the number of GPUs that the job needs."""
    return job.spec.nnodes * job.spec.gpus_per_node
