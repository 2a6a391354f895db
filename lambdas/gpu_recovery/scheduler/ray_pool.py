"""Runs in `ray_runner` only: one pass over the Ray pool, which places waiting jobs on free GPUs.

The pass runs only where the Ray cluster can be reached. The pool has no records in the instance table, so each pass
asks Ray for the free GPUs.
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
    """Place the waiting jobs that fit the Ray pool.

    A job that has changed since it was read rejects its event as outdated.

    Returns:
        The number of jobs that were placed.

    Raises:
        ExceptionGroup: a record could not be read, or an event could not be delivered. The other jobs were handled.
    """
    now = recovery.clock()
    failures: list[Exception] = []  # an unreadable record must not block the other jobs
    jobs = recovery.store.jobs_on_ray(failures)
    waiting = tuple(job for job in jobs if job.status in QUEUED_STATUSES and not _is_cooling_down(job, now))
    if not waiting:
        raise_all("not every job on Ray could be read", failures)
        return 0
    live = tuple(job for job in jobs if job.status not in QUEUED_STATUSES)
    placement = place(PoolSnapshot(waiting, live, pool.free_gpus_per_node(), pool.total_gpus()))
    failures += run_each(lambda answer: recovery.handle(*answer), _placement_events(placement, now))
    raise_all("not every job on Ray could be told", failures)
    return len(placement.admitted)


def _is_cooling_down(job: Job, now: datetime) -> bool:
    return job.not_before is not None and job.not_before > now


def _placement_events(placement: PoolPlacement, now: datetime) -> Iterator[tuple[str, events.JobEvent]]:
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
