"""How long each status of a job waits: when it gives up, and when it is next compared with what ECS says."""

from __future__ import annotations

from datetime import datetime

from ..machine import Given
from ..policy import within
from .record import Job, JobStatus


def deadlines(job: Job, given: Given) -> tuple[datetime | None, datetime | None]:
    """When the job's status gives up, and when it is next compared with ECS."""
    look = given.now + within(given.policy.look_s)
    match job.status:
        case JobStatus.QUEUED:
            return (job.in_line_at or job.queued_at) + within(given.policy.queue_timeout_s), look
        case JobStatus.PENDING_RESOURCES:
            return given.now + within(given.policy.pending_retry_s), None
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
            return given.now + within(given.policy.check_timeout_s + given.policy.look_s), look
        case JobStatus.RECOVERING:
            return given.now + within(given.policy.recover_timeout_s), job.not_before or look
        case _:
            return None, None
