"""One pass of the scheduler: read one snapshot, let the core place, tell each job what became of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from .core import events
from .core.instance.record import InstanceStatus
from .core.job.record import WAITING, Job, JobStatus
from .core.placement import Placement, Snapshot, place
from .isolation import raise_all, try_each
from .recovery import Recovery

JOBS_PER_PASS = 100
UNFINISHED = "not every job could be given or told its place"


def schedule(recovery: Recovery) -> int:
    """Place what fits; how many jobs were given a place.

    A job that has moved since the snapshot refuses what it is told (the version is a fence), and an instance that has
    been taken refuses the claim, so a pass on an old snapshot does no harm.
    """
    now = recovery.clock()
    failures: list[Exception] = []  # a record that nobody can read keeps no other job waiting
    waiting = recovery.store.jobs_in(WAITING, JOBS_PER_PASS, failures)
    jobs = tuple(job for job in waiting if not job.waits_to_retry and not (job.not_before and job.not_before > now))
    if not jobs:
        raise_all(UNFINISHED, failures)
        return 0
    present = [status for status in InstanceStatus if status is not InstanceStatus.GONE]
    instances = recovery.store.instances_in(present, failures)
    placement = place(Snapshot(jobs, instances), recovery.policy)
    failures += try_each(lambda told: recovery.tell(*told), _answers(jobs, placement, now))
    raise_all(UNFINISHED, failures)
    return len(placement.assignments)


def _answers(jobs: Sequence[Job], placement: Placement, now: datetime) -> Iterator[tuple[str, events.JobEvent]]:
    """What each job of the snapshot must hear; one that waits in any case hears nothing."""
    for chosen in placement.assignments:
        yield chosen.job_id, events.JobPlaced(
            at=now, attempt=chosen.attempt, version=chosen.version, instances=chosen.instances, epochs=chosen.epochs,
            port_offset=chosen.port_offset,
        )  # fmt: skip
    in_line = {job.job_id for job in jobs if job.status in (JobStatus.QUEUED, JobStatus.PENDING_RESOURCES)}
    for waiting in placement.short:
        if waiting.job_id in in_line:
            yield (
                waiting.job_id,
                events.ResourcesShort(
                    at=now, attempt=waiting.attempt, version=waiting.version, sentence=waiting.sentence
                ),
            )
