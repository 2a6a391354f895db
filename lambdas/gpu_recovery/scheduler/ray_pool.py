"""One pass over the Ray pool: count its free GPUs, let the core choose who goes, tell each job what became of it.

It runs only where the cluster can be reached. Nothing of it is in our tables of instances: what is free is asked of
Ray each time.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from gpu_recovery.core import events
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.ray.placement import QUEUED_STATUSES, PoolPlacement, PoolSnapshot, place
from gpu_recovery.execution.ray import RayPool
from gpu_recovery.partial_failures import raise_all, run_each
from gpu_recovery.recovery import Recovery


def run_ray_pass(recovery: Recovery, pool: RayPool) -> int:
    """Let go whoever fits; how many jobs went. A job that has moved since it was read refuses what it is told."""
    now = recovery.clock()
    failures: list[Exception] = []  # a record that nobody can read keeps no other job waiting
    jobs = recovery.store.jobs_on_ray(failures)
    waiting = tuple(job for job in jobs if job.status in QUEUED_STATUSES and not _rests(job, now))
    if not waiting:
        raise_all("not every job on Ray could be read", failures)
        return 0
    live = tuple(job for job in jobs if job.status not in QUEUED_STATUSES)
    placement = place(PoolSnapshot(waiting, live, pool.free_gpus_per_node(), pool.total_gpus()))
    failures += run_each(lambda told: recovery.handle(*told), _answers(placement, now))
    raise_all("not every job on Ray could be told", failures)
    return len(placement.admitted)


def _rests(job: Job, now: datetime) -> bool:
    return job.not_before is not None and job.not_before > now


def _answers(placement: PoolPlacement, now: datetime) -> Iterator[tuple[str, events.JobEvent]]:
    for job in placement.admitted:
        yield (
            job.job_id,
            events.JobPlaced(at=now, attempt=job.attempt, version=job.version, instances=(), epochs=()),
        )
    for job, sentence in placement.rejected:
        yield (
            job.job_id,
            events.ResourcesShort(at=now, attempt=job.attempt, version=job.version, sentence=sentence),
        )
