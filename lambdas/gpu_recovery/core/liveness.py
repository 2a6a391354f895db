"""Liveness thresholds: what the time since an instance or rank was last seen means.

`core/instance/liveness.py` and `core/job/lost_contact.py` hold the transitions that follow.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum

from gpu_recovery.core.events import InstanceBooted
from gpu_recovery.core.heartbeat import Heartbeat, RankHeartbeat
from gpu_recovery.core.policy import RecoveryPolicy, within


class Liveness(StrEnum):
    """Liveness of an instance, by the time since its last heartbeat."""

    HEARD = "HEARD"
    SUSPECT = "SUSPECT"
    UNREACHABLE = "UNREACHABLE"
    LOST = "LOST"


def liveness(unseen_for: timedelta, policy: RecoveryPolicy) -> Liveness:
    """Return the liveness of an instance without a heartbeat for `unseen_for`."""
    if unseen_for > within(policy.heartbeat_stale_s):
        return Liveness.LOST
    if unseen_for > within(policy.unreachable_s):
        return Liveness.UNREACHABLE
    return Liveness.SUSPECT if unseen_for > within(policy.suspect_s) else Liveness.HEARD


def latest_attempts(ranks: Mapping[str, RankHeartbeat]) -> dict[str, int]:
    """Return the latest attempt of each job among these ranks."""
    latest: dict[str, int] = {}
    for rank in ranks.values():
        latest[rank.job_id] = max(rank.attempt, latest.get(rank.job_id, 0))
    return latest


def boot_event(beat: Heartbeat, now: datetime, sentence: str = "") -> InstanceBooted:
    """Return the event of a new boot. Ranks last seen before the boot ended with the previous boot."""
    at = beat.booted_at or now
    ended = {log: rank for log, rank in beat.ranks.items() if rank.seen_at < at}
    return InstanceBooted(at=now, boot_id=beat.boot_id, booted_at=at, ended=latest_attempts(ended), sentence=sentence)


def is_fresh(seen_at: datetime, now: datetime, policy: RecoveryPolicy) -> bool:
    """Return whether a rank or instance last seen at `seen_at` is within the heartbeat timeout."""
    return now - seen_at <= within(policy.heartbeat_stale_s)
