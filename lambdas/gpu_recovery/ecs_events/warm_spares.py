"""Record what ECS reports about the task of a warm spare.

The rank of the task is no rank of the attempt that ECS names. If a later attempt runs in the task, its end is an end of
a rank of that attempt, as the end of every task that was used again.
"""

from __future__ import annotations

from gpu_recovery.core import events
from gpu_recovery.core.job import warm_spares
from gpu_recovery.core.task import LastStatus, TaskFact
from gpu_recovery.ecs_events.held_tasks import held_task_ended
from gpu_recovery.execution.held_tasks import has_ended
from gpu_recovery.execution.warm_spares import is_task_of
from gpu_recovery.recovery import Recovery


def spare_changed(recovery: Recovery, fact: TaskFact, job_id: str, attempt: int, number: int) -> bool:
    """Record the change of a warm spare. Return whether the task is, or was, a warm spare of the job.

    Args:
        recovery: the loop.
        fact: the task.
        job_id: the job that the task names.
        attempt: the attempt that the task names.
        number: the rank that the task names.
    """
    job = recovery.store.load_job(job_id)
    if job is None or not job.spares_started:
        return False
    spare = warm_spares.spare_of(job, number)
    if spare is None:
        return number >= job.spec.nnodes and _ended_in_use(recovery, fact, job_id, attempt)
    if spare.attempt != attempt or not is_task_of(recovery.store, job, spare, fact):
        return False
    if fact.last_status == LastStatus.RUNNING:
        seen = events.SpareSeen(
            at=recovery.clock(), attempt=job.attempt, number=number, task_id=fact.task_id, runs=True
        )
        recovery.handle(job_id, seen)
    elif fact.last_status == LastStatus.STOPPED and has_ended(fact):
        # First the record of the job, then the plan: a launch writes the plan first, and then reads the record.
        ended = events.SpareEnded(
            at=recovery.clock(), attempt=job.attempt, number=number, sentence="its container has ended"
        )
        recovery.handle(job_id, ended)
        _ended_in_use(recovery, fact, job_id, attempt)
    return True


def _ended_in_use(recovery: Recovery, fact: TaskFact, job_id: str, attempt: int) -> bool:
    """Record the end for the attempt that runs in the task. Return whether one does."""
    job = recovery.store.load_job(job_id)
    plan = recovery.store.load_plan(job_id, job.attempt) if job is not None and job.attempt > attempt else None
    if plan is None or fact.task_id not in plan.task_ids:
        return False
    if fact.last_status == LastStatus.STOPPED:
        instance_id = plan.instances[plan.task_ids.index(fact.task_id)]
        held_task_ended(recovery, fact, job_id, attempt, instance_id)
    return True
