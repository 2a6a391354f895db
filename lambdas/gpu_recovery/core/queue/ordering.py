"""Phase 1: the line. Who goes before whom, by rules that no event during the wait can change for the worse."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from gpu_recovery.core.queue.snapshot import Waiting


def place_in_line(job: Waiting) -> tuple[int, bool, bool, datetime, str]:
    """The sort key: higher effective priority, then recovering gangs, then those that made room for others once, then
    by first submission."""
    return (-job.priority, not job.recovering, not job.suspensions, job.queued_at, job.job_id)


def in_line(waiting: Iterable[Waiting]) -> list[Waiting]:
    """All that wait, the first in line first."""
    return sorted(waiting, key=place_in_line)
