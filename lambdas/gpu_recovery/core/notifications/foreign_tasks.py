"""Notifications about tasks that others started under a name of an attempt or of a health check."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_recovery.core.identifiers import attempt_id
from gpu_recovery.core.notifications.template import Part, Phase, Severity, message, typed

if TYPE_CHECKING:
    from gpu_recovery.core.commands import NotifyOperator
    from gpu_recovery.core.instance.record import Instance


def foreign_task(job_id: str, attempt: int, rank: int | None, task_id: str) -> NotifyOperator:
    """Return the message that a task, which gpu-recovery did not start, carries the name of an attempt of a job."""
    name = attempt_id(job_id, attempt)
    claimed = f"rank {rank}" if rank is not None else "no rank"
    parts = {
        Part.WHAT: [f"Task {task_id} claims to be {claimed} of attempt {attempt} of job {job_id}."],
        Part.EVIDENCE: ["the launch records of the attempt, and the launch signature of the task"],
        Part.DONE: ["Its events are ignored."],
        Part.NEXT: ["The job continues with its own tasks."],
        Part.YOU: ["The job:", typed(f"status {job_id}")],
        Part.IDS: [f"job {job_id}, task {task_id}"],
    }
    return _message(name, parts, f"{job_id}: a foreign task uses its name", job_id=job_id)


def foreign_check(instance: Instance, check_id: str, task_id: str) -> NotifyOperator:
    """Return the message that a task, which gpu-recovery did not start, carries the name of a health check."""
    instance_id = instance.instance_id
    parts = {
        Part.WHAT: [f"Task {task_id} claims to be the health check {check_id}."],
        Part.EVIDENCE: ["the task id that was recorded when the check started"],
        Part.DONE: ["Its exit code is not used as a result for the instance."],
        Part.NEXT: ["The instance waits for its own check."],
        Part.YOU: ["The instance:", typed(f"instances {instance_id}")],
        Part.IDS: [f"instance {instance_id}, task {task_id}"],
    }
    subject = f"{instance_id}: a foreign task uses the name of its check"
    return _message(check_id, parts, subject, instance_id=instance_id)


def _message(
    name: str, parts: dict[Part, list[str]], subject: str, *, job_id: str = "", instance_id: str = ""
) -> NotifyOperator:
    """Return the message about the first foreign task that carries `name`, with the sentences that all such share."""
    note_id = f"{name}/refused"
    whole = parts | {
        Part.WHAT: [*parts[Part.WHAT], "gpu-recovery did not start this task."],
        Part.DONE: [*parts[Part.DONE], "The task was not stopped."],
        Part.NEXT: [
            *parts[Part.NEXT],
            "Other tasks with the same name are treated alike. No message about them follows for some hours.",
        ],
        Part.YOU: [
            "Find the caller of RunTask in CloudTrail. If the caller had no reason to start the task, stop the task.",
            *parts[Part.YOU],
        ],
        Part.IDS: [*parts[Part.IDS], f"correlation id {note_id}"],
    }
    return message(note_id, Severity.SEV3, Phase.NOTED, subject, whole, job_id=job_id, instance_id=instance_id)
