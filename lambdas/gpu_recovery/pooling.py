"""One pass over the Ray pool: count its free GPUs, let the core choose who goes, tell each job what became of it.

It runs only where the cluster can be reached. Nothing of it is in our tables of instances: what is free is asked of
Ray each time.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from .acts.of_ray import RayPool
from .core import events
from .core.job.record import LIVE, Job, JobStatus
from .core.job.spec import Backend
from .core.ray.placing import PoolPlacement, PoolSnapshot, place
from .isolation import raise_all, try_each
from .recovery import Recovery

JOBS_PER_STATUS = 1_000
IN_LINE = (JobStatus.QUEUED, JobStatus.PENDING_RESOURCES)


def pass_over(recovery: Recovery, pool: RayPool) -> int:
    """Let go whoever fits; how many jobs went. A job that has moved since it was read refuses what it is told."""
    now = recovery.clock()
    failures: list[Exception] = []  # a record that nobody can read keeps no other job waiting
    waiting = tuple(job for job in _on_ray(recovery, IN_LINE, failures) if not _rests(job, now))
    if not waiting:
        raise_all("not every job on Ray could be read", failures)
        return 0
    live = tuple(_on_ray(recovery, tuple(sorted(LIVE)), failures))
    placement = place(PoolSnapshot(waiting, live, pool.free_gpus_per_node(), pool.total_gpus()))
    failures += try_each(lambda told: recovery.tell(*told), _answers(placement, now))
    raise_all("not every job on Ray could be told", failures)
    return len(placement.goes)


def _rests(job: Job, now: datetime) -> bool:
    return job.not_before is not None and job.not_before > now


def _on_ray(recovery: Recovery, statuses: tuple[JobStatus, ...], failures: list[Exception]) -> Iterator[Job]:
    found = recovery.store.jobs_in(statuses, JOBS_PER_STATUS, failures)
    return (job for job in found if job.spec.backend is Backend.RAY)


def _answers(placement: PoolPlacement, now: datetime) -> Iterator[tuple[str, events.JobEvent]]:
    for job in placement.goes:
        yield (
            job.job_id,
            events.JobPlaced(at=now, attempt=job.attempt, version=job.version, instances=(), epochs=()),
        )
    for job, sentence in placement.waits:
        yield (
            job.job_id,
            events.ResourcesShort(at=now, attempt=job.attempt, version=job.version, sentence=sentence),
        )
