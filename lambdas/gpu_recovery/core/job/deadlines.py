"""How long each status of a job waits: when it gives up, and when it is next compared with what ECS says.

What waits for a place is not looked at by itself: the scheduler looks at all of it at once, each minute.
"""

from __future__ import annotations

from datetime import datetime

from gpu_recovery.core.job.record import Job, JobStatus
from gpu_recovery.core.policy import within
from gpu_recovery.core.state_machine import DecisionContext


def deadlines(job: Job, given: DecisionContext) -> tuple[datetime | None, datetime | None]:
    """When the job's status gives up, and when it is next compared with ECS."""
    look = given.now + within(given.policy.poll_interval_s)
    match job.status:
        case JobStatus.QUEUED:
            return (job.in_line_at or job.queued_at) + within(given.policy.queue_timeout_s), None
        case JobStatus.PENDING_RESOURCES:
            return (job.in_line_at or job.queued_at) + within(given.policy.queue_timeout_s), None
        case JobStatus.SUSPENDED:
            return given.now + within(
                given.policy.user_hold_timeout_s if job.held else given.policy.queue_timeout_s
            ), None
        case JobStatus.SUSPENDING:
            return given.now + within(job.spec.suspend_grace_s + given.policy.suspend_margin_s), look
        case JobStatus.SUBMITTING:
            return given.now + within(given.policy.launch_timeout_s), look
        case JobStatus.SUBMITTED:
            return given.now + within(given.policy.start_timeout_s), look
        case JobStatus.RUNNING:
            limit = job.spec.max_runtime_s
            return ((job.running_at or given.now) + within(limit) if limit else None), look
        case JobStatus.LOST:
            return given.now + within(given.policy.lost_timeout_s), look
        case JobStatus.STOPPING:
            return given.now + within(given.policy.stop_timeout_s), look
        case JobStatus.DIAGNOSING:
            return given.now + within(given.policy.check_timeout_s + given.policy.poll_interval_s), look
        case JobStatus.RECOVERING:
            return given.now + within(given.policy.recover_timeout_s), None
        case _:
            return None, None
