"""Notifications about tasks that users start themselves, before a record of their job exists."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_recovery.core.notifications.template import Part, Phase, Severity, message, typed

if TYPE_CHECKING:
    from gpu_recovery.core.commands import NotifyOperator


def adoption_refused(job_id: str, task_id: str, reason: str, over: int = 0) -> NotifyOperator:
    """Return the message that a task of a user was not adopted, because of its JOB_ID or the length of its overrides.

    Args:
        job_id: the JOB_ID of the task.
        task_id: the task.
        reason: why it was not adopted, as a clause.
        over: the characters by which its overrides are too long for a relaunch; 0: its JOB_ID is the reason.
    """
    another = ("Start the task with another JOB_ID. The job that uses this JOB_ID:", typed(f"status {job_id}"))
    shorter = (
        f"Make its overrides at least {over} characters shorter: move variables into the task definition or into a "
        "file. Then start the task again. The watched jobs:",
        typed("list"),
    )
    note_id = f"{job_id}/refused"
    parts = {
        Part.WHAT: [f"Task {task_id} carries JOB_ID {job_id}, but {reason}."],
        Part.EVIDENCE: ["the environment in the overrides of the task, as ECS reports it"],
        Part.DONE: ["The task was not stopped, and it is not watched."],
        Part.NEXT: [
            "The task runs without recovery. "
            "Other tasks with this JOB_ID are treated alike. No message about them follows for some hours.",
        ],
        Part.YOU: [*(shorter if over else another)],
        Part.IDS: [f"job {job_id}, task {task_id}", f"correlation id {note_id}"],
    }
    return message(note_id, Severity.SEV3, Phase.NOTED, f"{job_id}: a task was not adopted", parts, job_id=job_id)


def stop_timeout_too_long(job_id: str, task_definition: str, reason: str) -> NotifyOperator:
    """Return the message that the containers of an adopted job may take longer to stop than the deployment waits."""
    note_id = f"{job_id}/stop-timeout"
    parts = {
        Part.WHAT: [f"Job {job_id}, which a user started, runs task definition {task_definition}: {reason}."],
        Part.EVIDENCE: ["the task definition, as ECS describes it"],
        Part.DONE: ["The job was adopted nevertheless."],
        Part.NEXT: ["If the gang is stopped and a rank still runs after that time, its instance is rebooted."],
        Part.YOU: [
            "Shorten the stopTimeout, or deploy with a larger container_stop_timeout_max_s. The history of the job:",
            typed(f"explain {job_id}"),
        ],
        Part.IDS: [f"job {job_id}, task definition {task_definition}", f"correlation id {note_id}"],
    }
    subject = f"{job_id}: its stopTimeout is longer than gpu-recovery waits"
    return message(note_id, Severity.SEV3, Phase.NOTED, subject, parts, job_id=job_id)
