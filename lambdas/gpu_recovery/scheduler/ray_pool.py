"""Runs in `ray_runner` only: one pass over the Ray pool, which places waiting jobs on free GPUs.

The pass runs only where the Ray cluster can be reached. The pool has no records in the instance table, so each pass
asks Ray for the free GPUs.

Limits and quotas bind jobs on Ray and on ECS together, and two functions place them. So a pass that would place a job
under a limit begins a term of the scheduler, as the scheduler itself does, and counts again. Decisions of an earlier
term are refused, so no place is given twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

from gpu_recovery.core import events
from gpu_recovery.core.cluster_snapshot import running_by_user, waiting_for_a_place
from gpu_recovery.core.job.queue_entry import entry_on_ray
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.queue.entry import Entry
from gpu_recovery.core.queue.quota import QuotaKey, QuotaLimits
from gpu_recovery.core.ray.placement import QUEUED_STATUSES, PoolPlacement, PoolSnapshot, place
from gpu_recovery.core.state_machine import EventOutcome
from gpu_recovery.execution.ray import RayPool
from gpu_recovery.partial_failures import raise_all, run_each
from gpu_recovery.ports.errors import TermOver
from gpu_recovery.recovery import Recovery
from gpu_recovery.scheduler.recent_placements import correct_entries
from gpu_recovery.scheduler.schedule import limits_of

TERMS_MAX = 3
"""Terms that one pass begins. If the scheduler has begun another each time, the next message goes on."""


def run_ray_pass(recovery: Recovery, pool: RayPool) -> int:
    """Place the waiting jobs that fit the Ray pool and their limits.

    A job that has changed since it was read rejects its event as outdated.

    Returns:
        The number of jobs that were placed.

    Raises:
        ExceptionGroup: a record could not be read, or an event could not be delivered. The other jobs were handled.
    """
    now = recovery.clock()
    failures: list[Exception] = []  # an unreadable record must not block the other jobs
    snapshot, room = _read(recovery, pool, now, failures)
    if not snapshot.waiting:
        raise_all("not every job on Ray could be read", failures)
        return 0
    placement, term, placed = place(snapshot), None, 0

    def deliver(addressed: tuple[str, events.JobEvent]) -> None:
        nonlocal placed
        decision = recovery.handle(*addressed)
        applied = decision is not None and decision.outcome is EventOutcome.APPLIED
        placed += applied and isinstance(addressed[1], events.JobPlaced)

    for _ in range(TERMS_MAX):
        if placement.admitted and snapshot.limits != QuotaLimits():
            term = recovery.store.begin_term()
            failures.clear()
            snapshot, room = _read(recovery, pool, now, failures, term)
            placement = place(snapshot)
            placement = replace(placement, admitted=placement.admitted[:room])
        try:
            answers = _placement_events(placement, now, term, snapshot.limits.counts_jobs)
            failures += run_each(deliver, answers, fatal=TermOver)
        except TermOver:
            continue
        break
    raise_all("not every job on Ray got its event", failures)
    return placed


def _read(
    recovery: Recovery, pool: RayPool, now: datetime, failures: list[Exception], term: int | None = None
) -> tuple[PoolSnapshot, int | None]:
    """Read the jobs on Ray, the GPUs of the cluster, and what the limits count. Without a waiting job only the jobs.

    Args:
        term: the term of the pass, in which recent placements are counted as well; None before a term begins.

    Returns:
        (the snapshot, the number of jobs that may be placed in `term`; None for any number).
    """
    store = recovery.store
    jobs = store.jobs_on_ray(failures)
    waiting = tuple(job for job in jobs if job.status in QUEUED_STATUSES and not _is_cooling_down(job, now))
    live = tuple(job for job in jobs if job.status not in QUEUED_STATUSES)
    if not waiting:
        return PoolSnapshot((), live, {}, 0), None
    limits = limits_of(recovery)
    keys = (
        {QuotaKey(job.spec.user, job.spec.priority, job.spec.group) for job in waiting} if limits.instances else set()
    )
    used = store.quota_used(sorted(key.text for key in keys)) if keys else {}
    on_ray = {job.job_id: entry for job in live if (entry := entry_on_ray(job)) is not None}
    on_ecs: dict[str, Entry] = {}
    room = None
    if limits.counts_jobs:  # unreadable records of ECS are the reconciler's
        on_ecs = {entry.job_id: entry for entry in store.load_queue([])}
        room = correct_entries(store, term, now, on_ecs, on_ray) if term is not None else None
    snapshot = PoolSnapshot(
        waiting,
        live,
        pool.free_gpus_per_node(),
        pool.total_gpus(),
        limits,
        {key: used[key.text] for key in keys},
        running_by_user((*on_ecs.values(), *on_ray.values())),
        waiting_for_a_place(on_ecs.values(), recovery.policy, now),
    )
    return snapshot, room


def _is_cooling_down(job: Job, now: datetime) -> bool:
    return job.not_before is not None and job.not_before > now


def _placement_events(
    placement: PoolPlacement, now: datetime, term: int | None, counts: bool
) -> Iterator[tuple[str, events.JobEvent]]:
    for job in placement.admitted:
        yield (
            job.job_id,
            events.JobPlaced(
                at=now,
                attempt=job.attempt,
                version=job.version,
                instances=(),
                epochs=(),
                term=term,
                counts=counts and term is not None,
            ),
        )
    for job, sentence, short_of in placement.rejected:
        yield (
            job.job_id,
            events.ResourcesShort(
                at=now, attempt=job.attempt, version=job.version, sentence=sentence, short_of=short_of
            ),
        )
