"""Instances as clients of the API see them. Field names follow seeds 003 and 004 where those name a field."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from gpu_recovery.core.heartbeat import Heartbeat
from gpu_recovery.core.instance.fault_history import percent, score_sentence
from gpu_recovery.core.instance.lemons import LemonSignal, faded
from gpu_recovery.core.instance.record import Instance, InstanceStatus, RepairNeed
from gpu_recovery.core.liveness import liveness
from gpu_recovery.core.policy import RecoveryPolicy
from gpu_recovery.wire.json_body import history_view, time_text


def instance_summary(instance: Instance, now: datetime) -> dict[str, Any]:
    """An instance in a listing: with their histories, some 400 would be more than Lambda can answer with (6 MB)."""
    return {
        "instance_id": instance.instance_id,
        "status": instance.status.value,
        "reason": instance.reason,
        "agent_connected": instance.agent_connected,
        "ecs_status": instance.ecs_status,
        "container_instance_id": instance.container_instance_id,
        "gpus": instance.gpus,
        "claims": {job: claim.attempt for job, claim in instance.claims.items()},
        "reserved_for": instance.reserved_for or None,
        "boot_id": instance.boot_id,
        "booted_at": time_text(instance.booted_at),
        "epoch": instance.epoch,
        "status_at": time_text(instance.status_at),
        "deadline_at": time_text(instance.deadline_at),
        "incident_id": instance.incident_id or None,
        "drained": instance.drained,
        "availability_zone": instance.availability_zone,
        "silent_since": time_text(instance.silent_since),
        "suspicion": instance.avoid_reason or None,
        "health": {
            kind: {"status": one.status.value, "since": time_text(one.since), "sentence": one.sentence}
            for kind, one in sorted(instance.health.items())
        },
        "departure": None
        if instance.departure is None
        else {
            "kind": instance.departure.kind.value,
            "leaves_at": time_text(instance.departure.leaves_at),
            "source": instance.departure.source,
            "sentence": instance.departure.sentence,
        },
        "need": None
        if instance.need is None
        else {
            "rung": instance.need.rung.value,
            "evidence": instance.need.evidence,
            "seen_at": time_text(instance.need.seen_at),
            "job_id": _needed_by(instance.need),
        },
        "held": None
        if instance.held is None or instance.status is not InstanceStatus.QUARANTINED
        else {
            "since": time_text(instance.held.since),
            "because": instance.held.sentence,
        },
        "lemon": lemon_view(instance, now),
    }


def _needed_by(need: RepairNeed) -> str | None:
    """The job that waits for the repair, or else the one whose rank is to be ended by it."""
    ended = need.ends.job_id if need.ends is not None else ""
    return need.job_id or ended or None


def instance_view(instance: Instance, now: datetime) -> dict[str, Any]:
    """An instance by itself: its summary, and every decision with its reason."""
    return {**instance_summary(instance, now), "history": [history_view(entry) for entry in instance.history]}


def lemon_view(instance: Instance, now: datetime) -> dict[str, Any]:
    """What is remembered against an instance: its score in percent, and how often each signal counts at this time."""
    recent = [one.kind for one in instance.past if faded(one.at_s, now.timestamp())]
    return {
        "score": percent(instance.past, now),
        "made_of": score_sentence(instance.past, now) or None,
        "signals": {kind.value: recent.count(kind) for kind in LemonSignal if kind in recent},
    }


def heartbeat_view(
    beat: Heartbeat | None, inventory: tuple[str, str, datetime] | None, policy: RecoveryPolicy, now: datetime
) -> dict[str, Any] | None:
    """The latest heartbeat of an instance, and the latest inventory; None for one that was never heard of."""
    if beat is None:
        return None
    return {
        "seen_at": time_text(beat.seen_at),
        "liveness": liveness(now - beat.seen_at, policy).value,
        "boot_id": beat.boot_id or None,
        "booted_at": time_text(beat.booted_at),
        "health": beat.health,
        "ranks": [
            {"job_id": one.job_id, "attempt": one.attempt, "rank": one.rank, "seen_at": time_text(one.seen_at)}
            for one in sorted(beat.ranks.values(), key=lambda one: (one.job_id, one.attempt, one.rank))
        ],
        "inventory": None if inventory is None else {"at": time_text(inventory[2]), **json.loads(inventory[1])},
    }
