"""Notification about a permission that the deployment lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_recovery.core.notifications.template import Part, Phase, Severity, message, of_user, typed

if TYPE_CHECKING:
    from gpu_recovery.core.commands import NotifyOperator
    from gpu_recovery.core.job.record import Job
    from gpu_recovery.core.missing_permission import MissingPermission

HOW_TO_DEPLOY = (
    "The command is make deploy CONTEXT=<every -c option of the last deployment>. Without an option, its setting "
    "returns to the value in cdk.json or to the default.",
    "If one of these options is gpu-recovery:{setting}, extend the list in that option instead: it replaces the list "
    "in cdk.json.",
)
"""Sentences about a deployment that adds a value to a list. A command to copy could leave out other settings."""


def launch_denied(job: Job, lacks: MissingPermission, sentence: str, queue_timeout_s: int) -> NotifyOperator:
    """Return the message that AWS denied a launch because the deployment lacks a permission.

    Args:
        job: the record before the decision, at the attempt that was denied.
        lacks: the missing permission.
        sentence: the refusal in the words of AWS.
        queue_timeout_s: seconds in the queue after which a job fails.
    """
    affected = "All jobs on ECS" if lacks.everywhere else f"Jobs of the task definition {job.spec.task_definition}"
    others = [] if lacks.everywhere else ["Jobs of other task definitions start as usual."]
    how = [text.format(setting=lacks.setting) for text in HOW_TO_DEPLOY] if lacks.setting else []
    note_id = f"permission/{job.job_id}/{job.attempt}"
    parts = {
        Part.WHAT: [f"gpu-recovery cannot launch job {of_user(job)}: it lacks the permission {lacks.name}."],
        Part.EVIDENCE: [sentence],
        Part.DONE: [
            f"{affected} wait in the queue. The attempt is not counted.",
            f"A job that waits longer than queue_timeout_s ({queue_timeout_s} s) fails.",
            *others,
        ],
        Part.NEXT: [
            "One launch at a time is tried again, at growing intervals. When a launch succeeds, all jobs continue.",
            "If the permission is still missing in a day, another message follows.",
        ],
        Part.YOU: [lacks.remedy, *how, typed("queue", "the jobs that wait for it")],
        Part.IDS: [f"job {of_user(job)}, attempt {job.attempt}", f"correlation id {note_id}"],
    }
    subject = f"launches are blocked: no permission for {lacks.name}"
    return message(note_id, Severity.SEV2, Phase.NOTED, subject, parts, job_id=job.job_id)
