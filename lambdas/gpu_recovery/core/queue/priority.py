"""The priorities of jobs (seed 003), and how one that has had its share of a higher one falls back."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import IntEnum

from gpu_recovery.core.policy import RecoveryPolicy


class Priority(IntEnum):
    """How urgent a job is: a higher one goes first, and may take the place of lower ones."""

    EXTREME_HIGH = 50
    VERY_HIGH = 40
    HIGH = 30
    ABOVE_NORMAL = 20
    NORMAL = 10
    LOW = 0


def effective(asked: Priority, ran_s: int, policy: RecoveryPolicy) -> Priority:
    """The priority that counts for a job that has run `ran_s` seconds, over all its attempts."""
    if asked is Priority.ABOVE_NORMAL and ran_s >= policy.demote_after_s:
        return Priority.NORMAL
    return asked


def demotes_at(asked: Priority, ran_s: int, since: datetime, policy: RecoveryPolicy) -> datetime | None:
    """When a job that runs since `since`, and ran `ran_s` seconds before that, falls back; None if it does not."""
    if asked is not Priority.ABOVE_NORMAL:
        return None
    return since + timedelta(seconds=max(0, policy.demote_after_s - ran_s))
