"""Reported faults that only a repair cures: they decide if the health check of the instance had no result.

The health check decides about the hardware. An inconclusive check, or a check that found the host misconfigured, says
nothing about the GPUs. An error of the same incident still stands if its number asks for a repair: a weaker verdict
does not revoke a stronger report.
"""

from __future__ import annotations

import re

from gpu_recovery.core import events
from gpu_recovery.core.health_check import CheckOutcome, Verdict
from gpu_recovery.core.health_signals import HealthKind, HealthStatus
from gpu_recovery.core.instance.record import CheckRun, Fault, HealthReport, Instance, RepairLevel
from gpu_recovery.core.policy import duration
from gpu_recovery.core.state_machine import DecisionContext
from gpu_recovery.core.xid import XidClass, class_of

SENTENCE_MAX = 200
"""Upper bound of the characters of a fault's sentence."""
_XID_SOURCES = (HealthKind.ACCELERATED_COMPUTE, HealthKind.NODE_AGENT)
"""Health sources that report XIDs."""
_XID = re.compile(r"\bXID[ _](\d{1,4})\b")
_ASKED_BY_DRIVER = re.compile(r"the driver asks for recovery action [12467]\b")
"""The driver's recovery actions that a reboot carries out. For every other action the health check decides.

Action 3, Drain P2P, asks for the end of the processes and for another look, which the health check takes:
docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt. Action 5 is the IMEX domain since driver 590, and was a reset of the
GPU's bus in driver 580. Nothing is concluded from an unknown action.
"""
_FATAL_SXID = re.compile(r"\bfatal SXid \d")
_GRAVITY = (RepairLevel.REBOOT, RepairLevel.REPLACE)
"""Repair levels by gravity, the gravest last."""


def fault_after(event: events.HealthReported, before: HealthReport | None, context: DecisionContext) -> Fault | None:
    """Return the gravest fault that the health source has named, after `event`; None if the event is not IMPAIRED.

    `health_reports` keeps the earlier report with its fault through reports without a result. The report OK clears the
    fault, and so does a proved repair.
    """
    if event.status is not HealthStatus.IMPAIRED:
        return None
    known = before.fault if before is not None and before.status is HealthStatus.IMPAIRED else None
    level = _level_of(event, context) if event.kind in _XID_SOURCES else None
    if level is None or (known is not None and _GRAVITY.index(level) < _GRAVITY.index(known.rung)):
        return known
    return Fault(level, event.since, event.sentence[:SENTENCE_MAX])


def _level_of(event: events.HealthReported, context: DecisionContext) -> RepairLevel | None:
    """Return the repair level that the named errors ask for; None if no error asks for a repair by its number."""
    classes = xid_classes(event, context)
    if XidClass.REPLACE in classes:
        return RepairLevel.REPLACE
    is_asked = _ASKED_BY_DRIVER.search(event.sentence) or _FATAL_SXID.search(event.sentence)
    return RepairLevel.REBOOT if XidClass.REBOOT in classes or is_asked else None


def xid_classes(event: events.HealthReported, context: DecisionContext) -> set[XidClass]:
    """Return the classes of all XIDs that the report names; empty if it names none."""
    named = {int(number) for number in _XID.findall(event.sentence)}
    named |= {event.xid} if event.xid is not None else set()
    return {class_of(number, context.policy.xid_profile) for number in named}


def standing_fault(instance: Instance, run: CheckRun, context: DecisionContext) -> Fault | None:
    """Return the gravest fault reported in the incident of the check `run` and since the last boot, or None.

    The incident begins with the attempt, or `evidence_stale_s` before a check that no attempt asked for. A passive
    check has read the log itself and asks for a diagnostic run, which waits until no job works there. So for a passive
    check the XID number alone decides nothing.
    """
    if run.passive:
        return None
    began = run.since or instance.status_at - duration(context.policy.evidence_stale_s)
    booted = instance.boot_heard_at
    standing = [
        report.fault
        for report in instance.health.values()
        if report.status is HealthStatus.IMPAIRED and report.fault is not None and report.fault.since >= began
        if booted is None or report.fault.since >= booted
    ]
    return max(standing, key=lambda fault: (_GRAVITY.index(fault.rung), fault.since), default=None)


def verdict_by(fault: Fault, verdict: Verdict) -> Verdict:
    """Return the verdict in place of an inconclusive `verdict` while `fault` stands."""
    outcome = CheckOutcome.REPLACE if fault.rung is RepairLevel.REPLACE else CheckOutcome.REBOOT
    summary = f"{fault.sentence}; its check could not tell ({verdict.outcome}: {verdict.summary})"
    return Verdict(outcome, summary, verdict.boot_id, verdict.booted_at)
