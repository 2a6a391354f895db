"""The statuses of a job, and the groups of statuses that decisions share. Imports nothing, for quick programs."""

from __future__ import annotations

from enum import StrEnum


class JobStatus(StrEnum):
    """The statuses of a job. The comment beside a status says what the job waits for."""

    QUEUED = "QUEUED"  # its turn
    PENDING_RESOURCES = "PENDING_RESOURCES"  # GPUs
    SUBMITTING = "SUBMITTING"  # every rank to be launched
    SUBMITTED = "SUBMITTED"  # every rank to run
    RUNNING = "RUNNING"  # the ranks to end
    LOST = "LOST"  # a heartbeat, an end, or the answers of ECS and EC2
    SUSPENDING = "SUSPENDING"  # rank 0 to save and leave, or its grace to end
    SUSPENDED = "SUSPENDED"  # its former place in the queue, or a user who resumes it
    STOPPING = "STOPPING"  # the confirmed end of every rank
    DIAGNOSING = "DIAGNOSING"  # the health check of every instance
    RECOVERING = "RECOVERING"  # healthy instances: rebooted or spare
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELED = "CANCELED"


TERMINAL = frozenset({JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.CANCELED})
WAITING = (JobStatus.RECOVERING, JobStatus.QUEUED, JobStatus.PENDING_RESOURCES, JobStatus.SUSPENDED)
"""The statuses that the scheduler places from. In the queue a recovering gang precedes jobs that are equal to it
otherwise."""
LIVE = frozenset(
    {
        JobStatus.SUBMITTING,
        JobStatus.SUBMITTED,
        JobStatus.RUNNING,
        JobStatus.LOST,
        JobStatus.SUSPENDING,
        JobStatus.STOPPING,
    }
)
"""The statuses in which ranks of the current attempt may exist."""
RUNS = (JobStatus.RUNNING, JobStatus.LOST, JobStatus.SUSPENDING)
"""The statuses in which the ranks are assumed to work."""
PLACED = (*sorted(LIVE), JobStatus.DIAGNOSING, JobStatus.RECOVERING)
"""The statuses in which a job uses its user's quota: it has instances, or it continues on the next instances it
gets."""
LISTED_STATUSES = (
    JobStatus.RUNNING,
    JobStatus.LOST,
    JobStatus.SUBMITTED,
    JobStatus.SUBMITTING,
    JobStatus.SUSPENDING,
    JobStatus.STOPPING,
    JobStatus.DIAGNOSING,
    JobStatus.RECOVERING,
    JobStatus.QUEUED,
    JobStatus.PENDING_RESOURCES,
    JobStatus.SUSPENDED,
    JobStatus.FAILED,
    JobStatus.CANCELED,
    JobStatus.SUCCEEDED,
)
"""Statuses in the order of a listing of all jobs: active jobs first."""
