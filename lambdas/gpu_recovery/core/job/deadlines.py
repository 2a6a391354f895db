"""Deadlines of the job statuses: when a status gives up, and when ECS is polled next.

Jobs that wait for a place are not polled one by one: the scheduler reads all of them every minute.
"""

from __future__ import annotations

from datetime import datetime

from gpu_recovery.core.job.record import Job, JobStatus
from gpu_recovery.core.job.stop_timeout import stop_step_s
from gpu_recovery.core.policy import duration
from gpu_recovery.core.state_machine import DecisionContext


def deadlines(job: Job, context: DecisionContext) -> tuple[datetime | None, datetime | None]:
    """Return when the job's status gives up and when ECS is polled next; None stands for never."""
    poll_at = context.now + duration(context.policy.poll_interval_s)
    match job.status:
        case JobStatus.QUEUED:
            return (job.in_line_at or job.queued_at) + duration(context.policy.queue_timeout_s), None
        case JobStatus.PENDING_RESOURCES:
            return (job.in_line_at or job.queued_at) + duration(context.policy.queue_timeout_s), None
        case JobStatus.SUSPENDED:
            return context.now + duration(
                context.policy.user_hold_timeout_s if job.held else context.policy.queue_timeout_s
            ), None
        case JobStatus.SUSPENDING:
            return context.now + duration(job.spec.suspend_grace_s + context.policy.suspend_margin_s), poll_at
        case JobStatus.SUBMITTING:
            return context.now + duration(context.policy.launch_timeout_s), poll_at
        case JobStatus.SUBMITTED:
            return context.now + duration(context.policy.start_timeout_s), poll_at
        case JobStatus.RUNNING:
            return _deadline_of_run(job, context), _next_poll_of_run(job, context)
        case JobStatus.LOST:
            return context.now + duration(context.policy.lost_timeout_s), poll_at
        case JobStatus.STOPPING:
            step_s = context.policy.hold_confirm_s if job.holding else stop_step_s(job.spec, context.policy)
            return context.now + duration(step_s), poll_at
        case JobStatus.DIAGNOSING:
            return context.now + duration(context.policy.check_timeout_s + context.policy.poll_interval_s), poll_at
        case JobStatus.RECOVERING:
            return context.now + duration(context.policy.recover_timeout_s), None
        case _:
            return None, None


def _deadline_of_run(job: Job, context: DecisionContext) -> datetime | None:
    limit = job.spec.max_runtime_s
    return (job.running_at or context.now) + duration(limit) if limit else None


def _next_poll_of_run(job: Job, context: DecisionContext) -> datetime:
    """Return when the running job is polled next. A recovery or a downtime ends at a poll."""
    policy = context.policy
    recovering_s = policy.recovered_after_s if job.is_down else policy.poll_interval_s
    return context.now + duration(min(policy.poll_interval_s, recovering_s))
