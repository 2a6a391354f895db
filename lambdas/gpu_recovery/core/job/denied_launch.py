"""Launches that AWS denies because the deployment lacks a permission: the job waits, and no attempt is counted.

No job is at fault. The job returns to the queue, and is launched again after a pause that doubles. Until a launch is
authorized, the scheduler holds the jobs that need the same permission (`queue.launch_holds`). A job fails only if it
waits longer than `queue_timeout_s`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpu_recovery.core import commands, events
from gpu_recovery.core.job.completion import poke_scheduler
from gpu_recovery.core.job.record import DeniedLaunch, Job, JobStatus
from gpu_recovery.core.missing_permission import MissingPermission
from gpu_recovery.core.policy import duration
from gpu_recovery.core.queue.snapshot import RejectionKind
from gpu_recovery.core.state_machine import DecisionContext, Step


def with_denial(
    step: Step, job: Job, event: events.LaunchRefused, lacks: MissingPermission, context: DecisionContext
) -> Step:
    """Return `step`, which stops the gang, with the record of the denied launch and its notification.

    The time in the queue, after which the job fails, counts from the first of the denied launches in a row.
    """
    before = job.denied.launches if job.denied is not None and not job.denied.over else 0
    changes: dict[str, Any] = {
        **step.changes,
        "denied": DeniedLaunch(lacks, context.now, before + 1, pause_s=event.pause_s),
    }
    if not before:
        changes["in_line_at"] = context.now
    return replace(step, changes=changes, commands=(*step.commands, *notices(job, event, context)))


def notices(job: Job, event: events.LaunchRefused, context: DecisionContext) -> tuple[commands.NotifyOperator, ...]:
    """Return the notification of a missing permission, unless another attempt has sent one."""
    if event.lacks is None or event.is_told:
        return ()
    from gpu_recovery.core.notifications.permissions import launch_denied  # noqa: PLC0415 - a rare message

    return (launch_denied(job, event.lacks, event.sentence, context.policy.queue_timeout_s),)


def queued_again(job: Job, denied: DeniedLaunch, changes: dict[str, Any], context: DecisionContext) -> Step:
    """Return the step that queues the job again after a denied launch, with the pause of the denial.

    Args:
        job: the record, every rank of which has ended.
        denied: the denied launch.
        changes: further changes of the record.
        context: gives the time.
    """
    next_at = context.now + duration(denied.pause_s)
    changes = {**changes, "not_before": next_at, "short_of": RejectionKind.PERMISSION.value}
    orders = (commands.ReleaseInstances(job.instances, attempt=job.attempt), poke_scheduler(job))
    lacks = denied.lacks
    reason = f"gpu-recovery lacks the permission {lacks.name}; launched again at {next_at:%H:%M:%S} UTC. {lacks.remedy}"
    return Step(JobStatus.PENDING_RESOURCES, reason, changes, orders)


def with_permission(step: Step, job: Job, context: DecisionContext) -> Step:
    """Return `step`, after which the launch of the job is known to be authorized, with the end of its denials."""
    if job.denied is None or job.denied.over:
        return step
    over = replace(job.denied, over=True, at=context.now)
    return replace(step, changes={**step.changes, "denied": over}, commands=(*step.commands, poke_scheduler(job)))
