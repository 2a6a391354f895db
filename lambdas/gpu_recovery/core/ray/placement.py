"""Which jobs may go to the Ray cluster next: `place` reads one count of its GPUs and answers for everyone in line.

Counted as verl counts (seed 004, section 6.1): the free GPUs of all nodes together. By priority, then first in, first
out, all or nothing. The first that does not fit holds the rest back, or large jobs would be passed by small ones for
ever; one that the whole cluster could not hold is passed, because it would hold them back for nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gpu_recovery.core.job.record import LIVE, Job, JobStatus
from gpu_recovery.core.job.spec import Backend

QUEUED_STATUSES = (JobStatus.QUEUED, JobStatus.PENDING_RESOURCES)


def is_in_the_pool(job: Job) -> bool:
    """Whether it is a job on Ray that waits for its GPUs or has them: a pass over the pool reads those."""
    return job.spec.backend is Backend.RAY and (job.status in LIVE or job.status in QUEUED_STATUSES)


@dataclass(frozen=True, slots=True)
class PoolSnapshot:
    """The jobs in line, those that have been given GPUs of the cluster and have not ended, and its GPUs.

    free: GPUs free by node, as Ray counts them. in_all: the GPUs of the whole cluster, used or free.
    """

    waiting: tuple[Job, ...]
    live: tuple[Job, ...]
    free: Mapping[str, float]
    in_all: float


@dataclass(frozen=True, slots=True)
class PoolPlacement:
    """Who goes, in this order, and who waits for what, in a sentence: every job in line is in one of the two."""

    admitted: tuple[Job, ...]
    rejected: tuple[tuple[Job, str], ...]


def place(snapshot: PoolSnapshot) -> PoolPlacement:
    """Let go what fits. Pure.

    A driver takes its GPUs only once it runs, some time after it was let go: until then Ray counts them as free. So
    no more are given than the cluster has beside those of all our jobs that live.
    """
    given = sum(_gpus(job) for job in snapshot.live)
    left = min(sum(snapshot.free.values()), snapshot.in_all - given)
    goes: list[Job] = []
    waits: list[tuple[Job, str]] = []
    blocked_by = ""
    for job in _queue(snapshot.waiting):
        wanted = _gpus(job)
        if wanted > snapshot.in_all:
            waits.append((job, f"needs {wanted} GPUs; the Ray cluster has {snapshot.in_all:g} in all, used or free"))
        elif blocked_by:
            waits.append((job, f"waits behind {blocked_by} for the Ray cluster"))
        elif wanted > left:
            waits.append((job, f"needs {wanted} GPUs of the Ray cluster; {max(left, 0):g} are free"))
            blocked_by = job.job_id
        else:
            goes.append(job)
            left -= wanted
    return PoolPlacement(tuple(goes), tuple(waits))


def _queue(jobs: Iterable[Job]) -> list[Job]:
    return sorted(jobs, key=lambda job: (-job.spec.priority, job.queued_at, job.job_id))


def _gpus(job: Job) -> int:
    return job.spec.nnodes * job.spec.gpus_per_node
