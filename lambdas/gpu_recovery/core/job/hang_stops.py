"""Stops of a gang for a hang, which lengthen the next progress timeout: `progress_timeout.py`.

A stop counts because it may have been a false alarm, such as an unmarked evaluation. A stop that the fault of an
instance explains was none, so it does not count.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from gpu_recovery.core.job.record import Job
from gpu_recovery.core.progress_timeout import are_hangs_forgotten
from gpu_recovery.core.state_machine import DecisionContext

_CALM: dict[str, Any] = {"calm_s": 0, "calm_attempt": 0, "calm_run_s": 0}


def counted(job: Job, context: DecisionContext) -> dict[str, Any]:
    """Return the changes of a stop for a hang."""
    ran_s = int((context.now - (job.running_at or context.now)).total_seconds())
    return {
        "hang_stops": job.hang_stops + 1,
        "hang_run_s": max(job.hang_run_s, ran_s),
        "hang_attempt": job.attempt,
        "hang_run_before_s": job.hang_run_s,
        **_CALM,
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


def after_stable_run(job: Job, context: DecisionContext) -> dict[str, Any]:
    """Return the changes at a poll of a stable run: the stops are forgotten after enough time in stable runs.

    The time of all stable runs since the last stop counts together, because a large gang seldom runs for long.
    """
    if not job.hang_stops or job.running_at is None:
        return {}
    ran_s = int((context.now - job.running_at).total_seconds())
    before_s = job.calm_s + (job.calm_run_s if job.calm_attempt != job.attempt else 0)
    if are_hangs_forgotten(job.hang_run_s, before_s + ran_s, context.policy):
        return {"hang_stops": 0, "hang_run_s": 0, "hang_attempt": 0, **_CALM}
    return {"calm_s": before_s, "calm_attempt": job.attempt, "calm_run_s": ran_s}
