"""Priorities of jobs, and the demotion of a job after enough run time."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import IntEnum

from gpu_recovery.core.policy import RecoveryPolicy


class Priority(IntEnum):
    """How urgent a job is. Jobs of a higher priority go first, and may preempt jobs of a lower priority."""

    EXTREME_HIGH = 50
    VERY_HIGH = 40
    HIGH = 30
    ABOVE_NORMAL = 20
    NORMAL = 10
    LOW = 0


def effective(asked: Priority, ran_s: int, policy: RecoveryPolicy) -> Priority:
    """Return the effective priority of a job that ran `ran_s` seconds in all its attempts."""
    if asked is Priority.ABOVE_NORMAL and ran_s >= policy.demote_after_s:
        return Priority.NORMAL
    return asked


def demotes_at(asked: Priority, ran_s: int, since: datetime, policy: RecoveryPolicy) -> datetime | None:
    """Return when a running job is demoted; None if it never is.

    Args:
        ran_s: seconds that the job ran before `since`.
        since: start of the present run.
    """
    if asked is not Priority.ABOVE_NORMAL:
        return None
    return since + timedelta(seconds=max(0, policy.demote_after_s - ran_s))
