"""Signs of a fault of an instance after a failure of its job, without a health check: passive evidence.

`core/job/gang_check.py` decides whether the signs, or their absence, make the check of the whole gang unnecessary.
"""

from __future__ import annotations

from datetime import datetime

from gpu_recovery.core.health_signals import HealthStatus
from gpu_recovery.core.heartbeat import GpuHealth, Heartbeat
from gpu_recovery.core.instance.health_reports import is_about_mps
from gpu_recovery.core.instance.idle_check import passed_before
from gpu_recovery.core.instance.lemons import WINDOW_S, LemonSignal
from gpu_recovery.core.instance.record import Instance, InstanceStatus

SENTENCE_MAX = 200
"""Length of the sentence about a sign, in characters."""
FAILED_THERE = (LemonSignal.GANG_FAILED, LemonSignal.ALONE_FAILED, LemonSignal.LEFT_OUT)
"""Signals of the fault history that a job failed on the instance before."""


def has_reported(beat: Heartbeat | None, since: datetime) -> bool:
    """Return whether the agent has reported since the failure, and can read the GPUs."""
    return beat is not None and beat.seen_at >= since and beat.health in (GpuHealth.OK, GpuHealth.IMPAIRED)


def fault_of(instance: Instance, beat: Heartbeat, first: str, now: datetime) -> str:
    """Return the sign of a fault of the instance as a sentence; "" if it shows none.

    Args:
        instance: the record of the instance.
        beat: its heartbeat.
        first: the instance on which the attempt failed first; "" if unknown.
        now: time of the question.
    """
    if beat.health is GpuHealth.IMPAIRED:
        return (beat.sentence or "its agent reports a fault of a GPU")[:SENTENCE_MAX]
    for source, health in instance.health.items():
        if health.status is HealthStatus.IMPAIRED and not is_about_mps(health):
            return f"{source}: {health.sentence}"[:SENTENCE_MAX]
    if instance.status is not InstanceStatus.AVAILABLE or instance.need is not None:
        return f"it is {instance.status}: {instance.reason}"[:SENTENCE_MAX]
    if instance.instance_id == first and _failed_there_before(instance, now):
        return "jobs have failed there first before"
    return ""


def with_idle_check(sign: str, instance: Instance, began: datetime) -> str:
    """Return the sentence about a sign, with the idle check that the instance had passed before the attempt.

    The pass is stated, and changes no decision: the failure is newer evidence than the pass.

    Args:
        sign: the sentence about the sign of a fault; "" for none, which stays.
        instance: the record of the instance.
        began: the time at which the attempt began.
    """
    passed_at, checked = passed_before(instance, began), instance.idle_check
    if not sign or passed_at is None or checked is None:
        return sign
    hours = (began - passed_at).total_seconds() / 3600
    passed = f"; it had passed an idle check at level {checked.level}, {hours:.1f} h before the attempt"
    return f"{sign[: SENTENCE_MAX - len(passed)]}{passed}"


def is_certain(instance: Instance, beat: Heartbeat) -> bool:
    """Return whether the sign of a fault of the instance is one that no program can cause.

    A program can fail first on an instance again and again, and cause errors that a health source then reports.
    """
    if beat.health is GpuHealth.IMPAIRED or any(health.impairs for health in instance.health.values()):
        return True
    return instance.status is not InstanceStatus.AVAILABLE or instance.need is not None


def _failed_there_before(instance: Instance, now: datetime) -> bool:
    """Return whether the fault history has a failure of a job on the instance. The present failure is not in it."""
    return any(signal.kind in FAILED_THERE and now.timestamp() - signal.at_s < WINDOW_S for signal in instance.past)
