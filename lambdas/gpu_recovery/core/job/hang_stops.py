"""Stops of a gang for a hang, which lengthen the next progress timeout: `progress_timeout.py`.

A stop counts because it may have been a false alarm, such as an unmarked evaluation. Two kinds of stop do not count:

- The fault of an instance explains the hang (`explained`).
- The activity of every rank confirms the hang, and the job had got further than at any stop before. A program that
  only waits for something remote looks the same. So at most `CONFIRMED_MAX` stops are spared in this way, until the
  stops are forgotten. In the last attempt of a job every stop counts: with the longest timeout the program may get
  over its wait.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from gpu_recovery.core import events
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.policy import RecoveryPolicy
from gpu_recovery.core.progress_timeout import are_hangs_forgotten
from gpu_recovery.core.state_machine import DecisionContext

CONFIRMED_MAX = 6
"""Stops for a confirmed hang that lengthen no timeout, until the stops are forgotten."""
_CALM: dict[str, Any] = {"calm_s": 0, "calm_attempt": 0, "calm_run_s": 0}


def backoffs(job: Job, policy: RecoveryPolicy) -> int:
    """Return the number of stops for a hang that lengthen the next timeout."""
    return job.hang_stops - (job.hangs_confirmed if job.attempts_left(policy) else 0)


def counted(job: Job, event: events.ProgressStopped, context: DecisionContext) -> dict[str, Any]:
    """Return the changes of a stop for a hang."""
    ran_s = int((context.now - (job.running_at or context.now)).total_seconds())
    before, reached = job.hang_progress, event.progress
    has_advanced = reached is not None and (before is None or reached > before)
    is_spared = event.confirmed and has_advanced and job.hangs_confirmed < CONFIRMED_MAX
    return {
        "hang_stops": job.hang_stops + 1,
        "hangs_confirmed": job.hangs_confirmed + is_spared,
        "hang_run_s": max(job.hang_run_s, ran_s),
        "hang_attempt": job.attempt,
        "hang_is_confirmed": is_spared,
        "hang_progress": reached if has_advanced else before,
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
    return {
        "hang_stops": job.hang_stops - 1,
        "hangs_confirmed": job.hangs_confirmed - job.hang_is_confirmed,
        "hang_is_confirmed": False,
        "hang_run_s": job.hang_run_before_s,
        "hang_attempt": 0,
    }


def after_stable_run(job: Job, context: DecisionContext) -> dict[str, Any]:
    """Return the changes at a poll of a stable run: the stops are forgotten after enough time in stable runs.

    The time of all stable runs since the last stop counts together, because a large gang seldom runs for long.
    """
    if not job.hang_stops or job.running_at is None:
        return {}
    ran_s = int((context.now - job.running_at).total_seconds())
    before_s = job.calm_s + (job.calm_run_s if job.calm_attempt != job.attempt else 0)
    if are_hangs_forgotten(job.hang_run_s, before_s + ran_s, context.policy):
        forgotten = {"hang_stops": 0, "hangs_confirmed": 0, "hang_is_confirmed": False}
        return {**forgotten, "hang_run_s": 0, "hang_attempt": 0, **_CALM}
    return {"calm_s": before_s, "calm_attempt": job.attempt, "calm_run_s": ran_s}
