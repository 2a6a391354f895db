"""Record the end of a task that a later attempt may have used again.

ECS names the attempt that started the task. The end belongs to the attempt that has the task now. If none has it, only
the claim of the job on the instance is left, which the end removes.
"""

from __future__ import annotations

from gpu_recovery.core import commands
from gpu_recovery.core.attempt import stopped_event, with_awaited_flag
from gpu_recovery.core.job.record import Job, JobStatus
from gpu_recovery.core.task import TaskFact, failure_of
from gpu_recovery.execution.held_tasks import end_in_place
from gpu_recovery.execution.task_ownership import may_run_on
from gpu_recovery.recovery import Recovery


def held_task_ended(recovery: Recovery, fact: TaskFact, job_id: str, attempt: int, instance_id: str) -> None:
    """Record the end of a task for the present attempt of its job, and free its GPUs if no attempt uses it.

    Args:
        recovery: the loop.
        fact: the stopped task.
        job_id: the job.
        attempt: the attempt that started the task.
        instance_id: the instance.
    """
    job = recovery.store.load_job(job_id)
    if job is None:
        return
    if job.attempt == attempt:
        is_over = not may_run_on(recovery.store, fact, job_id, attempt, instance_id)
        if job.status is JobStatus.RECOVERING and is_over:
            _free(recovery, job, instance_id, attempt, fact)
        return
    plan = recovery.store.load_plan(job_id, job.attempt)
    if plan is None or fact.task_id not in plan.task_ids:
        if not may_run_on(recovery.store, fact, job_id, attempt, instance_id):
            _free(recovery, job, instance_id, job.attempt - 1, fact)
        return
    rank = plan.task_ids.index(fact.task_id)
    if may_run_on(recovery.store, fact, job_id, job.attempt, instance_id):
        return  # as for the task of any rank, the poll of the job finds it
    progress = recovery.store.load_progress(job_id, job.attempt)
    is_started = progress is not None and (rank in progress.running or rank in progress.held)
    failure = end_in_place(failure_of(fact, rank, instance_id), is_started)
    addition = recovery.store.add_stopped(job_id, job.attempt, rank, failure)
    event = stopped_event(addition.progress, addition.first_failure, fact.at) if addition else None
    if event is not None:
        recovery.handle(job_id, event)


def _free(recovery: Recovery, job: Job, instance_id: str, last: int, fact: TaskFact) -> None:
    """Remove the claim of an attempt up to `last` from the instance, or let its health check take the claim over."""
    releases = [pending.command for pending in job.commands if isinstance(pending.command, commands.ReleaseInstances)]
    release = next((one for one in releases if instance_id in one.instances), None)
    if release is not None and release.check is not None:
        recovery.handle(instance_id, with_awaited_flag(job, release.check))
        return
    left_out = release is not None and instance_id in release.left_out
    recovery.store.release_instance(instance_id, job.job_id, False, last, recovery.clock() if left_out else None)
    recovery.actions.poke_scheduler(f"{instance_id}/{fact.task_id}")
