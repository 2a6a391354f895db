"""How long each status waits: when it gives up, and when it is next compared with what ECS says."""

from __future__ import annotations

from datetime import datetime

from .instance_record import Instance, InstanceStatus
from .job_record import Job, JobStatus
from .machine import Given
from .policy import within


def job_deadlines(job: Job, given: Given) -> tuple[datetime | None, datetime | None]:
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
            return (given.now + within(limit) if limit else None), look
        case JobStatus.STOPPING:
            return given.now + within(given.policy.stop_timeout_s), look
        case JobStatus.DIAGNOSING:
            return given.now + within(given.policy.check_timeout_s + given.policy.look_s), look
        case JobStatus.RECOVERING:
            return given.now + within(given.policy.recover_timeout_s), look
        case _:
            return None, None


def instance_deadlines(instance: Instance, given: Given) -> tuple[datetime | None, datetime | None]:
    """When the instance's status gives up, and when it is next compared with ECS."""
    look = given.now + within(given.policy.look_s)
    match instance.status:
        case InstanceStatus.AVAILABLE:
            return (given.now + within(given.policy.reserve_s) if instance.reserved_for else None), None
        case InstanceStatus.CHECKING:
            return given.now + within(given.policy.check_timeout_s), look
        case InstanceStatus.REBOOTING:
            return (
                instance.reboot.deadline_at if instance.reboot else given.now + within(given.policy.reboot_timeout_s)
            ), look
        case InstanceStatus.VERIFYING:
            return given.now + within(given.policy.verify_timeout_s), look
        case InstanceStatus.QUARANTINED:
            return given.now + within(given.policy.quarantine_reminder_s), None
        case _:
            return None, None
