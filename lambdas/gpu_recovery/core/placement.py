"""Which job gets which instances next: `place` reads one frozen view of the cluster and answers for everyone in it.

The order is first in, first out over whole instances, all or nothing: a gang gets every instance it needs or none.
A recovering gang goes before the queue and keeps the healthy instances of its last attempt. The first job in line
that does not fit holds the rest back, so that a large job is not passed by small ones for ever; a job that even the
whole empty cluster could not hold is passed, because it would hold them back for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .instance.record import EcsStatus, Instance, InstanceStatus
from .job.record import Job, JobStatus
from .policy import RecoveryPolicy


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Every job that waits for a place and every instance known, as read at one time."""

    jobs: tuple[Job, ...]
    instances: tuple[Instance, ...]


@dataclass(frozen=True, slots=True)
class Assignment:
    """The instances of one job's next attempt, in rank order, with the epoch each had when it was chosen."""

    job_id: str
    version: int
    attempt: int
    instances: tuple[str, ...]
    epochs: tuple[int, ...]
    port_offset: int


@dataclass(frozen=True, slots=True)
class Short:
    """A job that found no place, and why, in a sentence."""

    job_id: str
    version: int
    attempt: int
    sentence: str


@dataclass(frozen=True, slots=True)
class Placement:
    """The answer: who starts where, and who waits for what. Every job of the snapshot is in exactly one of the two."""

    assignments: tuple[Assignment, ...]
    short: tuple[Short, ...]


def place(snapshot: Snapshot, policy: RecoveryPolicy) -> Placement:
    """Assign instances to the jobs in line. Pure, and never gives one instance to two jobs."""
    # 1. Line up: recovering gangs first, then by when they were first submitted.
    line = sorted(snapshot.jobs, key=lambda job: (job.status is not JobStatus.RECOVERING, job.queued_at, job.job_id))

    # 2. What is free: whole, healthy, connected instances that nobody has a claim on.
    free = {instance.instance_id: instance for instance in snapshot.instances if _is_free(instance)}

    assignments: list[Assignment] = []
    short: list[Short] = []
    blocked_by = ""
    for job in line:
        # 3. Behind a job that waits, everybody waits, whatever is free.
        if blocked_by:
            short.append(_short(job, f"waits behind {blocked_by}"))
            continue
        # 4. Choose, gang-wise; what is kept for another job is not a choice.
        fitting = [i for i in free.values() if i.gpus >= job.spec.gpus_per_node and i.reserved_for in ("", job.job_id)]
        chosen = _choose(job, fitting, policy)
        if chosen is not None:
            for instance in chosen:
                del free[instance.instance_id]
            assignments.append(_assignment(job, chosen))
            continue
        # 5. Say what is missing, and hold back the rest unless the job could never fit.
        could_fit = sum(_could_serve(i, job) for i in snapshot.instances) >= job.spec.nnodes
        short.append(_short(job, _what_is_missing(job, fitting, could_fit, policy)))
        if could_fit and job.status is not JobStatus.RECOVERING:
            blocked_by = job.job_id
        if could_fit and job.status is JobStatus.RECOVERING:
            # Its turn has come, only its instances have not: what fits it is kept, the rest may go to others.
            for instance in _kept_back(job, fitting, policy):
                del free[instance.instance_id]
    return Placement(tuple(assignments), tuple(short))


def _kept_back(job: Job, fitting: list[Instance], policy: RecoveryPolicy) -> list[Instance]:
    """What a recovering gang that still waits keeps from the queue: its own instances, and spares if it takes any."""
    if not policy.relaunch_on_same_instances:
        return fitting
    return [instance for instance in fitting if instance.instance_id in job.instances]


def _is_free(instance: Instance) -> bool:
    return (
        instance.status is InstanceStatus.AVAILABLE
        and instance.ecs_status == EcsStatus.ACTIVE
        and instance.agent_connected
        and not instance.claims
        and not instance.suspicion
        and (instance.gpus_free is None or instance.gpus_free >= instance.gpus)
    )


def _could_serve(instance: Instance, job: Job) -> bool:
    """Whether the instance, once free and healthy, has the GPUs the job asks for."""
    lost = instance.status in (InstanceStatus.GONE, InstanceStatus.QUARANTINED)
    return not lost and instance.gpus >= job.spec.gpus_per_node


def _choose(job: Job, fitting: list[Instance], policy: RecoveryPolicy) -> list[Instance] | None:
    """`nnodes` instances in rank order, or None. Instances of the last attempt keep their rank."""
    by_id: Mapping[str, Instance] = {instance.instance_id: instance for instance in fitting}
    recovering = job.status is JobStatus.RECOVERING
    # People may have started two ranks on one instance; we never do.
    last = [i if i not in job.instances[:rank] else "" for rank, i in enumerate(job.instances)]
    if recovering and policy.relaunch_on_same_instances:
        own = [by_id[i] for i in last if i in by_id]
        return own if len(own) == job.spec.nnodes and not job.repairing else None
    suspects = {one.instance_id: one.rank for one in job.suspicions if one.stands}
    last = [i if i not in suspects else "" for i in last]
    kept: list[Instance | None] = [by_id.get(i) for i in last] if recovering else [None] * job.spec.nnodes
    kept = kept[: job.spec.nnodes] + [None] * (job.spec.nnodes - len(kept))
    taken = {instance.instance_id for instance in kept if instance is not None}
    # Smallest sufficient instances first, so that larger ones stay whole for those who need them.
    others = sorted(
        (i for i in fitting if i.instance_id not in taken),
        key=lambda i: (i.instance_id in suspects, i.gpus, i.instance_id),
    )
    filled = [instance or (others.pop(0) if others else None) for instance in kept]
    chosen = [i for i in filled if i is not None]
    return _under_other_ranks(chosen, suspects) if len(chosen) == job.spec.nnodes else None


def _under_other_ranks(chosen: list[Instance], suspects: Mapping[str, int]) -> list[Instance]:
    """`chosen`, no suspect among them with the rank it was suspected for: who ends first next tells which it is."""
    ranked = list(chosen)
    for rank, instance in enumerate(chosen):
        if suspects.get(instance.instance_id) == rank:
            other = (rank + 1) % len(ranked)
            ranked[rank], ranked[other] = ranked[other], ranked[rank]
    return ranked


def _assignment(job: Job, chosen: list[Instance]) -> Assignment:
    offsets = {claim.port_offset for claim in chosen[0].claims.values()}
    port_offset = next(n for n in range(len(offsets) + 1) if n not in offsets)
    ids = tuple(instance.instance_id for instance in chosen)
    epochs = tuple(instance.epoch for instance in chosen)
    return Assignment(job.job_id, job.version, job.attempt, ids, epochs, port_offset)


def _short(job: Job, sentence: str) -> Short:
    return Short(job.job_id, job.version, job.attempt, sentence)


def _what_is_missing(job: Job, fitting: list[Instance], could_fit: bool, policy: RecoveryPolicy) -> str:
    wanted = f"{job.spec.nnodes} instance(s) with {job.spec.gpus_per_node} GPU(s) each"
    if not could_fit:
        return f"needs {wanted}; the cluster has not that many, used or free"
    if job.status is JobStatus.RECOVERING and policy.relaunch_on_same_instances:
        own = {instance.instance_id for instance in fitting}
        missing = ", ".join(i for i in job.instances if i not in own)
        return f"waits for its own instances: {missing or 'their repair to be reported'}"
    return f"needs {wanted}; {len(fitting)} are free"
