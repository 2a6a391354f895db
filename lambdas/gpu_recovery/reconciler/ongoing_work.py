"""Ongoing work at the instances of a job whose deadline has come: reboots, repairs and checks that it waits for.

The product's own limits may hold such work back for hours. Then the deadline of the job moves.
"""

from __future__ import annotations

from gpu_recovery.core.attempt import AttemptProgress, Plan, is_under_way
from gpu_recovery.core.job.record import Job, JobStatus
from gpu_recovery.core.job.stopping import REBOOTS_FROM_TRY
from gpu_recovery.recovery import Recovery


def instances_under_way(
    recovery: Recovery, job: Job, plan: Plan | None, progress: AttemptProgress | None
) -> tuple[str, ...]:
    """Return the instances at which something goes on that the job waits for. Other statuses wait for no instance.

    A diagnosis has its instances checked and repaired in the background. If the cluster has no others, the job waits
    for them, too.
    """
    if job.status is JobStatus.RECOVERING:
        awaited = tuple(dict.fromkeys((*job.repairing, *job.blamed)))
    elif plan is None or progress is None:
        return ()
    elif job.status is JobStatus.STOPPING and job.stop_tries >= REBOOTS_FROM_TRY:
        awaited = progress.unconfirmed(plan)
    elif job.status is JobStatus.DIAGNOSING:
        awaited = tuple(instance for rank, instance in enumerate(plan.instances) if rank not in progress.checked)
    else:
        return ()
    records = recovery.store.load_instances([instance_id for instance_id in awaited if instance_id])
    now = recovery.clock()
    return tuple(instance_id for instance_id, record in records.items() if is_under_way(record, job, now))
