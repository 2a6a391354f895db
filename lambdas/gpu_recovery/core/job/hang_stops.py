"""Stops of a gang for a hang, which lengthen the next progress timeout: `progress_timeout.py`.

A stop counts because it may have been a false alarm, such as an unmarked evaluation. A stop that the fault of an
instance explains was none, so it does not count.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from gpu_recovery.core.job.record import Job
from gpu_recovery.core.state_machine import DecisionContext


def counted(job: Job, context: DecisionContext) -> dict[str, Any]:
    """Return the changes of a stop for a hang."""
    ran_s = int((context.now - (job.running_at or context.now)).total_seconds())
    return {
        "hang_stops": job.hang_stops + 1,
        "hang_run_s": max(job.hang_run_s, ran_s),
        "hang_attempt": job.attempt,
        "hang_run_before_s": job.hang_run_s,
    }


def explained(job: Job, faulty: Collection[str]) -> dict[str, Any]:
    """Return the changes after which the stop of this attempt for a hang does not count.

    Args:
        job: the job after the end of its attempt.
        faulty: the instances that are found faulty; without any, the stop goes on counting.
    """
    if not faulty or not job.hang_stops or job.hang_attempt != job.attempt:
        return {}
    return {"hang_stops": job.hang_stops - 1, "hang_run_s": job.hang_run_before_s, "hang_attempt": 0}
