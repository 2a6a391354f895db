"""The queue entry of a job: the fields that the scheduler and the totals of the queue read."""

from __future__ import annotations

from dataclasses import replace

from gpu_recovery.core.job import named_instances, warm_spares
from gpu_recovery.core.job.growth import growths, is_growing, is_narrow, width_limit
from gpu_recovery.core.job.held_ranks import kept_instances
from gpu_recovery.core.job.record import PLACED, WAITING, Job, JobStatus
from gpu_recovery.core.job.spec import Backend
from gpu_recovery.core.queue.entry import Entry
from gpu_recovery.core.ray.placement import is_in_the_pool

_LEAVES = (JobStatus.SUSPENDING, JobStatus.STOPPING)


def entry_of(job: Job) -> Entry | None:
    """Return the queue entry of the job, or None.

    None means that the job neither waits for instances nor has any, or that it runs on Ray, which places its own jobs.
    """
    return _entry(job) if job.spec.backend is Backend.ECS and job.status in (*WAITING, *PLACED) else None


def entry_on_ray(job: Job) -> Entry | None:
    """Return the queue entry of a job that waits for GPUs of the Ray cluster or has some; None for any other job."""
    return replace(_entry(job), workload="") if is_in_the_pool(job) else None


def _entry(job: Job) -> Entry:
    spec, denied = job.spec, job.denied
    lacks = denied.lacks if denied is not None and not denied.over else None
    return Entry(
        job_id=job.job_id,
        version=job.version,
        attempt=job.attempt,
        user=spec.user,
        asked=spec.priority,
        group=spec.group,
        nodes=spec.nnodes,
        gpus=spec.gpus_per_node,
        queued_at=job.queued_at,
        placed_at=job.status_at,
        waits=job.status in WAITING,
        recovering=job.status is JobStatus.RECOVERING,
        repairing=bool(job.repairing),
        held=job.held,
        works=job.status is JobStatus.RUNNING,
        leaves=job.status in _LEAVES and not is_growing(job),
        observed=job.hands_off,
        known_short=job.short_of,
        fresh=job.status is JobStatus.QUEUED,
        instances=job.instances,
        suspects=named_instances.used_last(job),
        not_before=job.not_before,
        suspended_at=job.suspended_at,
        suspended_for=job.suspended_for,
        suspensions=job.suspensions,
        ran_s=job.ran_s,
        running_at=job.running_at,
        max_runtime_s=spec.max_runtime_s,
        holds_quota=job.quota_nodes > 0,
        workload=spec.workload,
        task_definition=spec.task_definition,
        launching=job.status is JobStatus.SUBMITTING or (job.status is JobStatus.STOPPING and lacks is not None),
        denials=denied.launches if denied is not None and lacks is not None else 0,
        lacks=lacks.name if lacks is not None else "",
        lacks_everywhere=lacks is not None and lacks.everywhere,
        status=job.status.value,
        name=spec.name,
        in_place=bool(kept_instances(job)),
        let_go=job.let_go,
        passed_since=job.passed_since,
        spares=tuple(spare.instance_id for spare in job.spares if spare.waits),
        ready=warm_spares.ready_instances(job),
        asks_spares=spec.warm_spares or 0,
        nodes_min=spec.nnodes_min or 0,
        narrow_since=job.narrow_since,
        grows=is_growing(job),
        narrow=is_narrow(job),
        growths=growths(job),
        down=is_narrow(job) and job.is_down,
        refused=job.refused,
        width_limit=width_limit(job),
    )
