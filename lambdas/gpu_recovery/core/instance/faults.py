"""Errors that watchers report and that only a repair cures, for the checks that could not tell.

The health check judges the hardware. A check that could not tell, or that found the host set up wrongly, says nothing
about the GPUs. An error of the same incident that asks for a repair by its number then still stands: a weaker verdict
never takes a stronger one back.
"""

from __future__ import annotations

import re

from gpu_recovery.core import events
from gpu_recovery.core.health_check import CheckOutcome, Verdict
from gpu_recovery.core.health_signals import HealthKind, HealthStatus
from gpu_recovery.core.instance.record import CheckRun, Fault, HealthReport, Instance, RepairLevel
from gpu_recovery.core.policy import within
from gpu_recovery.core.state_machine import DecisionContext
from gpu_recovery.core.xid import XidClass, class_of

SENTENCE_MAX = 200
_WATCHERS = (HealthKind.ACCELERATED_COMPUTE, HealthKind.NODE_AGENT)
_XID = re.compile(r"\bXID[ _](\d{1,4})\b")
_ASKED_BY_DRIVER = re.compile(r"the driver asks for recovery action [1-5]\b")
_OF_A_SWITCH = re.compile(r"\bfatal SXid \d")
_GRAVITY = (RepairLevel.REBOOT, RepairLevel.REPLACE)


def fault_after(event: events.HealthReported, before: HealthReport | None, given: DecisionContext) -> Fault | None:
    """The gravest error that the watcher has named, once `event` is heard; only its word that all is well ends it."""
    if event.status is not HealthStatus.IMPAIRED:
        return None
    kept = before.fault if before is not None and before.status is HealthStatus.IMPAIRED else None
    rung = _rung_of(event, given) if event.kind in _WATCHERS else None
    if rung is None or (kept is not None and _GRAVITY.index(rung) < _GRAVITY.index(kept.rung)):
        return kept
    return Fault(rung, event.since, event.sentence[:SENTENCE_MAX])


def _rung_of(event: events.HealthReported, given: DecisionContext) -> RepairLevel | None:
    """What the errors that the watcher names ask for; None if none of them asks for a repair by its number."""
    named = {int(number) for number in _XID.findall(event.sentence)}
    named |= {event.xid} if event.xid is not None else set()
    classes = {class_of(number, given.policy.xid_profile) for number in named}
    if XidClass.REPLACE in classes:
        return RepairLevel.REPLACE
    is_asked = _ASKED_BY_DRIVER.search(event.sentence) or _OF_A_SWITCH.search(event.sentence)
    return RepairLevel.REBOOT if XidClass.REBOOT in classes or is_asked else None


def standing_fault(instance: Instance, run: CheckRun, given: DecisionContext) -> Fault | None:
    """The gravest error that was reported in the incident that `run` looks into, and since the last boot.

    That is since the attempt began, or not long before a check that no attempt asked for. A passive check has read the
    log itself and asks for a diagnostic, which waits until nobody works there: there the number alone decides nothing.
    """
    if run.passive:
        return None
    began = run.since or instance.status_at - within(given.policy.evidence_stale_s)
    booted = instance.boot_heard_at
    found = [
        one.fault
        for one in instance.health.values()
        if one.status is HealthStatus.IMPAIRED and one.fault is not None and one.fault.since >= began
        if booted is None or one.fault.since >= booted
    ]
    return max(found, key=lambda one: (_GRAVITY.index(one.rung), one.since), default=None)


def verdict_by(fault: Fault, verdict: Verdict) -> Verdict:
    """The verdict where `verdict` could not tell and `fault` stands."""
    outcome = CheckOutcome.REPLACE if fault.rung is RepairLevel.REPLACE else CheckOutcome.REBOOT
    summary = f"{fault.sentence}; its check could not tell ({verdict.outcome}: {verdict.summary})"
    return Verdict(outcome, summary, verdict.boot_id, verdict.booted_at)
