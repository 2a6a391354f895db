"""Instances as API clients see them. Field names are public and do not change."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from gpu_recovery.core.health_signals import HealthKind, HealthStatus
from gpu_recovery.core.heartbeat import GpuHealth, Heartbeat
from gpu_recovery.core.instance.fault_history import percent, score_sentence
from gpu_recovery.core.instance.idle_check import has_passed
from gpu_recovery.core.instance.lemons import LemonSignal, faded
from gpu_recovery.core.instance.out_of_use import OutOfUseReason, out_of_use_reasons
from gpu_recovery.core.instance.record import Instance, InstanceStatus, ListedInstance, RepairNeed
from gpu_recovery.core.liveness import liveness
from gpu_recovery.core.policy import RecoveryPolicy
from gpu_recovery.wire.json_body import history_view, time_text


def instance_summary(instance: ListedInstance, now: datetime) -> dict[str, Any]:
    """Return an instance in a listing, without its history.

    With histories, about 400 instances would exceed the largest response of Lambda (6 MB).
    """
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
        "group": instance.group,
        "rack": instance.rack,
        "silent_since": time_text(instance.silent_since),
        "suspicion": instance.avoid_reason or None,
        "health": {
            kind: {"status": report.status.value, "since": time_text(report.since), "sentence": report.sentence}
            for kind, report in sorted(instance.health.items())
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
            "job_id": _waiting_job(instance.need),
        },
        "held": None
        if instance.held is None or instance.status is not InstanceStatus.QUARANTINED
        else {
            "since": time_text(instance.held.since),
            "because": instance.held.sentence,
        },
        "quarantined_by": quarantined_by(instance),
        "lemon": lemon_view(instance, now),
        "idle_check": idle_check_view(instance, now),
        "out_of_use": [out_of_use_view(reason) for reason in out_of_use_reasons(instance)],
    }


def quarantined_by(instance: ListedInstance) -> str | None:
    """Return the operator who quarantined the instance; None if the system did, for a fault, or if it works."""
    if not instance.needs_operator or instance.quarantine is None:
        return None
    return instance.quarantine.by or None


def out_of_use_view(reason: OutOfUseReason) -> dict[str, Any]:
    """Return one reason why an instance gets no job."""
    return {"kind": reason.kind.value, "since": time_text(reason.since), "because": reason.sentence}


def node_agent_view(beat: Heartbeat | None, policy: RecoveryPolicy, now: datetime) -> dict[str, Any] | None:
    """Return when the node agent of an instance last reported, and its liveness; None if it never reported."""
    if beat is None:
        return None
    return {"seen_at": time_text(beat.seen_at), "liveness": liveness(now - beat.seen_at, policy).value}


def _waiting_job(need: RepairNeed) -> str | None:
    """Return the job that waits for the repair, or else the job with the rank that the repair ends.

    Returns:
        None if there is neither.
    """
    ended = need.ends.job_id if need.ends is not None else ""
    return need.job_id or ended or None


def instance_view(instance: Instance, now: datetime, beat: Heartbeat | None = None) -> dict[str, Any]:
    """Return an instance on its own: its summary, and every decision with its reason.

    Args:
        beat: its latest heartbeat. A report that changes only the sentence of the GPU health is saved there alone.
    """
    summary = instance_summary(instance, now)
    report = summary["health"].get(HealthKind.NODE_AGENT.value)
    status = None if beat is None or beat.health is None else _UNIMPAIRED.get(beat.health)
    # An impairment keeps the evidence that led to a check. A heartbeat of an older release has no sentence.
    if report is not None and report["status"] == status and beat and (beat.sentence or status is HealthStatus.OK):
        report["sentence"] = beat.sentence
    return {**summary, "history": [history_view(entry) for entry in instance.history]}


_UNIMPAIRED = {GpuHealth.OK: HealthStatus.OK, GpuHealth.UNKNOWN: HealthStatus.INSUFFICIENT_DATA}
"""Status of an instance by the GPU health that its agent reports, without the impairment."""


def idle_check_view(instance: ListedInstance, now: datetime) -> dict[str, Any] | None:
    """Return the last idle check of an instance, and the last that it passed; None if it had none."""
    checked = instance.idle_check
    if checked is None:
        return None
    return {
        "ended_at": time_text(checked.ended_at),
        "outcome": checked.outcome or None,
        "passed_at": time_text(checked.passed_at),
        "level": checked.level or None,
        "counts": has_passed(instance, now),
    }


def lemon_view(instance: ListedInstance, now: datetime) -> dict[str, Any]:
    """Return the lemon score of an instance in percent, and how often each signal counts at `now`."""
    recent = [signal.kind for signal in instance.past if faded(signal.at_s, now.timestamp())]
    return {
        "score": percent(instance.past, now),
        "made_of": score_sentence(instance.past, now) or None,
        "signals": {kind.value: recent.count(kind) for kind in LemonSignal if kind in recent},
    }


def heartbeat_view(
    beat: Heartbeat | None, inventory: tuple[str, str, datetime] | None, policy: RecoveryPolicy, now: datetime
) -> dict[str, Any] | None:
    """Return the latest heartbeat of an instance, with its GPU inventory; None if the instance never reported.

    Args:
        inventory: digest, JSON text and time of the latest inventory; None if there is none.
    """
    if beat is None:
        return None
    return {
        "seen_at": time_text(beat.seen_at),
        "liveness": liveness(now - beat.seen_at, policy).value,
        "boot_id": beat.boot_id or None,
        "booted_at": time_text(beat.booted_at),
        "health": beat.health,
        "sentence": beat.sentence or None,
        "ranks": [
            {"job_id": rank.job_id, "attempt": rank.attempt, "rank": rank.rank, "seen_at": time_text(rank.seen_at)}
            for rank in sorted(beat.ranks.values(), key=lambda rank: (rank.job_id, rank.attempt, rank.rank))
        ],
        "inventory": None if inventory is None else {"at": time_text(inventory[2]), **json.loads(inventory[1])},
    }
