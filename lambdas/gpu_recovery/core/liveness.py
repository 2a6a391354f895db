"""Liveness of instances and ranks, judged by the time since they were last heard of."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum

from gpu_recovery.core.events import InstanceBooted
from gpu_recovery.core.heartbeat import Heartbeat, RankHeartbeat
from gpu_recovery.core.policy import RecoveryPolicy, within


class Liveness(StrEnum):
    """How sure it is that an instance is there, by how long it has not been heard of."""

    HEARD = "HEARD"
    SUSPECT = "SUSPECT"
    UNREACHABLE = "UNREACHABLE"
    LOST = "LOST"


def liveness(unseen_for: timedelta, policy: RecoveryPolicy) -> Liveness:
    """What it means that an instance was not heard of for so long."""
    if unseen_for > within(policy.heartbeat_stale_s):
        return Liveness.LOST
    if unseen_for > within(policy.unreachable_s):
        return Liveness.UNREACHABLE
    return Liveness.SUSPECT if unseen_for > within(policy.suspect_s) else Liveness.HEARD


def latest_attempts(ranks: Mapping[str, RankHeartbeat]) -> dict[str, int]:
    """The latest attempt of each job among these ranks."""
    found: dict[str, int] = {}
    for rank in ranks.values():
        found[rank.job_id] = max(rank.attempt, found.get(rank.job_id, 0))
    return found


def boot_event(beat: Heartbeat, now: datetime, sentence: str = "") -> InstanceBooted:
    """What another boot than the one before means: ranks that were last seen before it have ended with the other."""
    at = beat.booted_at or now
    ended = {log: rank for log, rank in beat.ranks.items() if rank.seen_at < at}
    return InstanceBooted(at=now, boot_id=beat.boot_id, booted_at=at, ended=latest_attempts(ended), sentence=sentence)


def is_fresh(seen_at: datetime, now: datetime, policy: RecoveryPolicy) -> bool:
    """Whether something that was seen then still counts as heard of."""
    return now - seen_at <= within(policy.heartbeat_stale_s)
