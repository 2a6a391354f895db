"""Leaving what was submitted and what became of it where people keep records (seed 004: a folder for each task).

A record is written whole each time, so it may be written again and again: first when the attempt has ended, again when
its checks have said who is to blame.
"""

from __future__ import annotations

from typing import Any

from gpu_recovery.core import commands
from gpu_recovery.core.attempt import AttemptProgress, Plan
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.job.spec import Backend
from gpu_recovery.core.state_machine import PendingCommand
from gpu_recovery.execution.context import DONE, CommandResult, ExecutionContext
from gpu_recovery.wire.attempts import attempt_view

ARCHIVED_LOG_LINES = 100


def record(kit: ExecutionContext, job: Job, pending: PendingCommand) -> CommandResult:
    """Write the text that was submitted (attempt 0), or what is known of an attempt."""
    order: commands.RecordAttempt = pending.command
    if order.attempt == 0:
        text = kit.store.load_submitted(job.job_id) if kit.submitted is None else kit.submitted
        kit.actions.record_submitted(job, text or "")
        return DONE
    plan = kit.store.load_plan(job.job_id, order.attempt)
    progress = kit.store.load_progress(job.job_id, order.attempt)
    view = {**attempt_view(job, order.attempt, plan, progress), "log": _log(kit, job, plan, progress)}
    kit.actions.record_attempt(job, plan or Plan(job.job_id, order.attempt, ()), view)
    return DONE


def _log(kit: ExecutionContext, job: Job, plan: Plan | None, progress: AttemptProgress | None) -> dict[str, Any] | None:
    """The last lines of the rank that failed first, or why there are none; None where none failed, or on Ray."""
    failure = progress.failure if progress is not None else None
    if failure is None or plan is None or job.spec.backend is not Backend.ECS or failure.rank >= len(plan.task_ids):
        return None
    task_id = plan.task_ids[failure.rank]
    found = kit.actions.log_tail(job, task_id, ARCHIVED_LOG_LINES) if task_id else "it never had a task"
    lines, why = ([], found) if isinstance(found, str) else (list(found), None)
    return {"rank": failure.rank, "lines": lines, "why_none": why}
