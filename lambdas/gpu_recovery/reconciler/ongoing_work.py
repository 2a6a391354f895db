"""Ongoing work at the instances of a job whose deadline has come: reboots, repairs and checks that it waits for.

The product's own limits may hold such work back for hours. Then the deadline of the job moves.
"""

from __future__ import annotations

from collections.abc import Mapping

from gpu_recovery.core.attempt import AttemptProgress, Plan
from gpu_recovery.core.instance.record import Instance
from gpu_recovery.core.job.record import Job, JobStatus
from gpu_recovery.recovery import Recovery


def awaited_instances(
    recovery: Recovery, job: Job, plan: Plan | None, progress: AttemptProgress | None
) -> Mapping[str, Instance]:
    """Return the records of the instances that the job waits for. Other statuses wait for no instance.

    A diagnosis has its instances checked and repaired in the background. If the cluster has no others, the job waits
    for them, too.
    """
    if job.status is JobStatus.RECOVERING:
        awaited = tuple(dict.fromkeys((*job.repairing, *job.blamed)))
    elif plan is None or progress is None:
        return {}
    elif job.status is JobStatus.STOPPING:
        awaited = progress.unconfirmed(plan)
    elif job.status is JobStatus.DIAGNOSING:
        awaited = tuple(instance for rank, instance in enumerate(plan.instances) if rank not in progress.checked)
    else:
        return {}
    return recovery.store.load_instances([instance_id for instance_id in awaited if instance_id])
