"""Phase 1, queue order.

While a job waits, its sort key worsens only with time, when a preemption leaves `policy.suspensions_window_s`. The
exception is a recovering gang that its user suspends: it is no longer a recovering gang when the user resumes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from gpu_recovery.core.queue.snapshot import WaitingJob


def queue_position_key(job: WaitingJob) -> tuple[int, bool, bool, datetime, str]:
    """Return the sort key of a job.

    Higher effective priority goes first, then recovering gangs, then jobs that were suspended for others, then the
    earlier first submission.
    """
    return (-job.priority, not job.recovering, not job.suspensions, job.queued_at, job.job_id)


def in_queue_order(waiting: Iterable[WaitingJob]) -> list[WaitingJob]:
    """Return the waiting jobs in queue order."""
    return sorted(waiting, key=queue_position_key)
