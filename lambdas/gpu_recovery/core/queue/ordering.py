"""Phase 1: the line. Who goes before whom, by rules that no event during the wait can change for the worse."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from gpu_recovery.core.queue.snapshot import WaitingJob


def queue_position_key(job: WaitingJob) -> tuple[int, bool, bool, datetime, str]:
    """The sort key: higher effective priority, then recovering gangs, then those that made room for others once, then
    by first submission."""
    return (-job.priority, not job.recovering, not job.suspensions, job.queued_at, job.job_id)


def in_queue_order(waiting: Iterable[WaitingJob]) -> list[WaitingJob]:
    """All that wait, the first in line first."""
    return sorted(waiting, key=queue_position_key)
