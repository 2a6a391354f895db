"""Job archive: writes the submitted text and each attempt to S3, a folder for each job.

Each write replaces the whole document, so it can be repeated. An attempt is written when it has ended, and again when
its checks have shown the cause.
"""

from __future__ import annotations

from typing import Any

from gpu_recovery.core import commands
from gpu_recovery.core.attempt import AttemptProgress, Plan
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.job.spec import Backend
from gpu_recovery.core.state_machine import PendingCommand
from gpu_recovery.execution.context import DONE, CommandResult, ExecutionContext

ARCHIVED_LOG_LINES = 100
"""Lines of the log of a failed rank, or of a failed driver on Ray, in the archive."""
ARCHIVED_LINE_CHARACTERS_MAX = 10_000
"""Upper bound of the characters of such a line. Ray cuts no line of a log."""


def record(context: ExecutionContext, job: Job, pending: PendingCommand) -> CommandResult:
    """Write the submitted text (attempt 0), or the document of an attempt."""
    command: commands.RecordAttempt = pending.command
    if command.attempt == 0:
        text = context.store.load_submitted(job.job_id) if context.submitted is None else context.submitted
        context.actions.record_submitted(job, text or "")
        return DONE
    plan = context.store.load_plan(job.job_id, command.attempt)
    progress = context.store.load_progress(job.job_id, command.attempt)
    from gpu_recovery.wire.attempts import attempt_view  # noqa: PLC0415 - few deployments keep an archive

    view = {**attempt_view(job, command.attempt, plan, progress), "log": _log(context, job, plan, progress)}
    context.actions.record_attempt(job, plan or Plan(job.job_id, command.attempt, ()), view)
    return DONE


def _log(
    context: ExecutionContext, job: Job, plan: Plan | None, progress: AttemptProgress | None
) -> dict[str, Any] | None:
    """Return the log tail of the rank that failed first, without secrets, or why there is none.

    On Ray this is the log of the driver. None without a failure.
    """
    failure = progress.failure if progress is not None else None
    if failure is None or plan is None or failure.rank >= len(plan.task_ids):
        return None
    task_id = plan.task_ids[failure.rank]
    tail = _tail(context, job, task_id) if task_id else "it never had a task"
    if isinstance(tail, str):
        return {"rank": failure.rank, "lines": [], "why_none": tail}
    from gpu_recovery.core.redaction import masked  # noqa: PLC0415 - few deployments keep an archive

    lines = [masked(line[:ARCHIVED_LINE_CHARACTERS_MAX]) for line in tail]
    return {"rank": failure.rank, "lines": lines, "why_none": None}


def _tail(context: ExecutionContext, job: Job, task_id: str) -> tuple[str, ...] | str:
    """Return the last lines of a task, or of the driver with this submission id; or why there are none."""
    if job.spec.backend is Backend.ECS:
        return context.actions.log_tail(job, task_id, ARCHIVED_LOG_LINES)
    if context.ray is None:
        return "this deployment has no Ray cluster"
    return context.ray.log_tail(task_id, ARCHIVED_LOG_LINES)
