"""What a pass of the scheduler would say of one job: whether it starts, where, and if not, what it waits for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from .core.job.record import Job
from .core.names import listed
from .core.policy import RecoveryPolicy
from .core.queue.priority import effective
from .core.queue.snapshot import Placement, Shortage, Snapshot, Waiting

Place = Callable[[Snapshot, RecoveryPolicy, datetime], Placement]


@dataclass(frozen=True, slots=True)
class Foresight:
    """The answer about one job. `instances` are those it would get; `position` is None if it would not wait."""

    would_start: bool
    sentence: str
    instances: tuple[str, ...] = ()
    short_of: Shortage | None = None
    position: int | None = None
    blockers: tuple[str, ...] = ()
    earliest_at: datetime | None = None
    would_suspend: tuple[str, ...] = ()


def as_waiting(job: Job, policy: RecoveryPolicy) -> Waiting:
    """A job that has just been submitted, as the queue sees it."""
    asked = job.spec.priority
    return Waiting(
        job_id=job.job_id, version=job.version, attempt=job.attempt, user=job.spec.user,
        priority=effective(asked, job.ran_s, policy), asked=asked, group=job.spec.group, nodes=job.spec.nnodes,
        gpus=job.spec.gpus_per_node, queued_at=job.queued_at, runs_for_s=job.spec.max_runtime_s,
    )  # fmt: skip


def with_one_more(snapshot: Snapshot, job: Job, policy: RecoveryPolicy) -> Snapshot:
    """The queue with a job in it that is not kept."""
    return replace(snapshot, waiting=(*snapshot.waiting, as_waiting(job, policy)))


def of_job(placement: Placement, job_id: str) -> Foresight | None:
    """What the placement says of one job; None if it is not in line."""
    suspended = tuple(one.job_id for one in placement.suspensions if one.for_job == job_id)
    for one in placement.assignments:
        if one.job_id == job_id:
            return Foresight(True, f"would start at once on {listed(one.instances)}", one.instances)
    for short in placement.short:
        if short.job_id == job_id:
            return Foresight(
                False, short.sentence, (), short.short_of, short.position, short.blockers, short.earliest_at, suspended
            )
    return None
