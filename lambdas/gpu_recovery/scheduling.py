"""One pass of the scheduler: read one snapshot, let the core place, tell each job what became of it."""

from __future__ import annotations

from .core import events
from .core.instance_record import InstanceStatus
from .core.job_record import WAITING, JobStatus
from .core.placement import Snapshot, place
from .recovery import Recovery

JOBS_PER_PASS = 100


def schedule(recovery: Recovery) -> int:
    """Place what fits; how many jobs were given a place.

    A job that has moved since the snapshot refuses what it is told (the version is a fence), and an instance that has
    been taken refuses the claim, so a pass on an old snapshot does no harm.
    """
    jobs = tuple(job for job in recovery.store.jobs_in(WAITING, JOBS_PER_PASS) if not job.waits_to_retry)
    if not jobs:
        return 0
    instances = recovery.store.instances_in([s for s in InstanceStatus if s is not InstanceStatus.GONE])
    placement = place(Snapshot(jobs, instances), recovery.policy)
    now = recovery.clock()
    for chosen in placement.assignments:
        placed = events.JobPlaced(
            at=now, attempt=chosen.attempt, version=chosen.version, instances=chosen.instances, epochs=chosen.epochs,
            port_offset=chosen.port_offset,
        )  # fmt: skip
        recovery.tell(chosen.job_id, placed)
    queued = {job.job_id for job in jobs if job.status is JobStatus.QUEUED}
    for waiting in placement.short:
        if waiting.job_id in queued:
            short = events.ResourcesShort(
                at=now, attempt=waiting.attempt, version=waiting.version, sentence=waiting.sentence
            )
            recovery.tell(waiting.job_id, short)
    return len(placement.assignments)
