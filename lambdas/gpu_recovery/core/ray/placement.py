"""Placement on the Ray cluster: which queued jobs may start next.

`place` reads a single count of the GPUs and answers for every queued job. It counts as verl counts: the free
GPUs of all nodes together. The order is by priority, then first in, first out, all or nothing. The first job that does
not fit blocks the jobs behind it, because otherwise small jobs would pass a large job for ever. A job that exceeds the
whole cluster is skipped, because it would block the others. So is a job over its quota or over the number of
jobs that may run: jobs on Ray and on ECS use the same limits. Under a limit of running jobs a job leaves its place to a
job on ECS that has precedence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from gpu_recovery.core.job.record import LIVE, Job, JobStatus
from gpu_recovery.core.job.spec import Backend
from gpu_recovery.core.queue.quota import QuotaKey, QuotaLimits
from gpu_recovery.core.queue.quota_admission import QuotaAdmission
from gpu_recovery.core.queue.snapshot import Snapshot, WaitingJob

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
        limits: limits of the quotas and of running jobs.
        used: instances and nodes in use by quota key.
        running: number of running jobs by user, on ECS and on Ray.
        waiting_on_ecs: jobs on ECS that wait for nothing but a place among the running jobs.
    """

    waiting: tuple[Job, ...]
    live: tuple[Job, ...]
    free: Mapping[str, float]
    in_all: float
    limits: QuotaLimits = field(default_factory=QuotaLimits)
    used: Mapping[QuotaKey, int] = field(default_factory=dict)
    running: Mapping[str, int] = field(default_factory=dict)
    waiting_on_ecs: tuple[WaitingJob, ...] = ()


class PoolRejection(NamedTuple):
    """A job that waits, and why. `short_of` is the kind of a limit (`RejectionKind`); "" for a lack of GPUs."""

    job: Job
    sentence: str
    short_of: str = ""


@dataclass(frozen=True, slots=True)
class PoolPlacement:
    """The admitted jobs in order, and the rejected jobs with a reason each. Every queued job is in one of the two."""

    admitted: tuple[Job, ...]
    rejected: tuple[PoolRejection, ...]


def place(snapshot: PoolSnapshot) -> PoolPlacement:
    """Return the placement for a snapshot. Pure.

    A driver takes its GPUs only when it runs, some time after its admission, and until then Ray counts them as free. So
    the GPUs of all our live jobs are subtracted from those of the cluster.
    """
    assigned = sum(_gpus(job) for job in snapshot.live)
    left = min(sum(snapshot.free.values()), snapshot.in_all - assigned)
    counted = Snapshot(
        (),
        (),
        (),
        used=snapshot.used,
        limits=snapshot.limits,
        elsewhere=snapshot.running,
        waiting_elsewhere=snapshot.waiting_on_ecs,
    )
    quota = QuotaAdmission(counted)
    admitted: list[Job] = []
    rejected: list[PoolRejection] = []
    blocked_by = ""
    for job in _queue(snapshot.waiting):
        wanted = _gpus(job)
        if wanted > snapshot.in_all:
            sentence = f"needs {wanted} GPUs; the Ray cluster has {snapshot.in_all:g} in all, used or free"
            rejected.append(PoolRejection(job, sentence))
        elif (refusal := quota.refusal(_waiting(job))) is not None:
            rejected.append(PoolRejection(job, refusal[1], refusal[0].value))
        elif blocked_by:
            rejected.append(PoolRejection(job, f"waits behind {blocked_by} for the Ray cluster"))
        elif wanted > left:
            sentence = f"needs {wanted} GPUs of the Ray cluster; {max(left, 0):g} are free"
            rejected.append(PoolRejection(job, sentence))
            blocked_by = job.job_id
        else:
            admitted.append(job)
            quota.charge(_waiting(job))
            left -= wanted
    return PoolPlacement(tuple(admitted), tuple(rejected))


def _queue(jobs: Iterable[Job]) -> list[Job]:
    """Return the jobs in queue order."""
    return sorted(jobs, key=lambda job: (-job.spec.priority, job.queued_at, job.job_id))


def _waiting(job: Job) -> WaitingJob:
    """Return the fields of the job that its quota needs."""
    spec = job.spec
    return WaitingJob(
        job_id=job.job_id,
        version=job.version,
        attempt=job.attempt,
        user=spec.user,
        priority=spec.priority,
        asked=spec.priority,
        group=spec.group,
        nodes=spec.nnodes,
        gpus=spec.gpus_per_node,
        queued_at=job.queued_at,
    )


def _gpus(job: Job) -> int:
    """Return the number of GPUs that the job needs."""
    return job.spec.nnodes * job.spec.gpus_per_node
