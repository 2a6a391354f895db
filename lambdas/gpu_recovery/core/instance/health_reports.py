"""Health reports about an instance: EC2 status checks, GPU health, ECS agent, node agent.

A report may be wrong or lost. It is never outdated, because `ecs_events/health.py` asks the source again instead. So a
report alone begins nothing that cannot be undone: a repair that it asks for passes the same limits as every other
repair (`escalation.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from gpu_recovery.core import events
from gpu_recovery.core.health_signals import HealthKind, HealthStatus
from gpu_recovery.core.instance.effects import poke_scheduler
from gpu_recovery.core.instance.escalation import EVIDENCE_CHARACTERS_MAX, check_instead, escalate
from gpu_recovery.core.instance.faults import fault_after, xid_classes
from gpu_recovery.core.instance.record import HealthReport, Instance, RepairLevel, RepairNeed
from gpu_recovery.core.mps_daemon import names_mps_daemon, reason_by_sharing
from gpu_recovery.core.state_machine import DecisionContext, Ignore, Step
from gpu_recovery.core.xid import HARMLESS


def health_recorded(instance: Instance, event: events.HealthReported, context: DecisionContext) -> Step | Ignore:
    """Record the report without acting on it: the check or repair under way will show the state of the GPUs.

    It will not show the state of EC2's status checks. Such a report is handled when the instance works again.
    """
    return Step(instance.status, instance.reason, _health(instance, event, context, handled=event.kind not in _LEVELS))


def health_reported(instance: Instance, event: events.HealthReported, context: DecisionContext) -> Step | Ignore:
    """Handle a report about a working instance: record it, and escalate if it says IMPAIRED."""
    changes = _health(instance, event, context)
    if _is_harmless(instance, event, context):
        return Step(instance.status, instance.reason, changes)
    if event.status is not HealthStatus.IMPAIRED:
        was = instance.health.get(event.kind)
        well = event.status is HealthStatus.OK and was is not None and was.status is HealthStatus.IMPAIRED
        return Step(instance.status, instance.reason, changes, (poke_scheduler(instance),) if well else ())
    evidence = f"{event.kind} is {event.status}" + (f": {event.sentence}" if event.sentence else "")
    rung = _LEVELS.get(event.kind, RepairLevel.CHECK if event.kind in _EXAMINES_GPUS else None)
    if rung is None or not instance.gpus_most:  # an instance without GPUs is not repaired
        return Step(instance.status, evidence, changes)
    return escalate(instance, RepairNeed(rung, evidence, context.now, source=event.kind), context, changes)


def health_of_held(instance: Instance, event: events.HealthReported, context: DecisionContext) -> Step | Ignore:
    """Record the report. If it withdraws the evidence of a held repair, check the instance instead."""
    need = instance.need
    asked = need is not None and need.source == event.kind
    changes = _health(instance, event, context, handled=asked or event.kind not in _LEVELS)
    if not asked or event.status is not HealthStatus.OK or instance.claims:
        return Step(instance.status, instance.reason, changes)
    return check_instead(instance, f"{event.kind} is {event.status} again", changes)


def _health(
    instance: Instance, event: events.HealthReported, context: DecisionContext, handled: bool = True
) -> dict[str, Any]:
    """Return the changes that save the report. A report without a result does not revoke an earlier IMPAIRED.

    Args:
        handled: the report needs no action later.
    """
    before = instance.health.get(event.kind)
    sentence, fault = _reason(instance, event)[:EVIDENCE_CHARACTERS_MAX], fault_after(event, before, context)
    cleared = _is_harmless(instance, event, context)
    report = HealthReport(event.status, event.since, sentence, handled, fault, event.updated_at, cleared)
    unsure = event.status in (HealthStatus.INSUFFICIENT_DATA, HealthStatus.INITIALIZING)
    if before is not None and ((unsure and before.status is HealthStatus.IMPAIRED) or _is_weaker(report, before)):
        report = replace(before, since=event.since, updated_at=event.updated_at)
    return {"health": {**instance.health, event.kind: report}}


def unhandled_report(instance: Instance) -> HealthKind | None:
    """Return the health source whose report IMPAIRED is not handled yet; a status check of EC2 comes first.

    The report came while the instance was busy, or only a passive check has followed it.
    """
    reports = instance.health.items()
    kinds = [kind for kind, report in reports if report.status is HealthStatus.IMPAIRED and not report.answered]
    first = min(kinds, key=lambda kind: (kind not in _LEVELS, kind), default=None)
    return HealthKind(first) if first is not None and instance.gpus_most else None


def waits_for_jobs(instance: Instance, kind: HealthKind) -> bool:
    """Return whether the unhandled report of `kind` is handled only when no job works on the instance any more."""
    return kind in _EXAMINES_GPUS and bool(instance.claims)


def after_passive_check(health: Mapping[str, HealthReport]) -> dict[str, HealthReport]:
    """Return `health` with the reports about the GPUs unhandled: a passive check has examined no GPU.

    It cannot end a request to drain peer-to-peer traffic either, because the traffic goes on beside it.
    """
    return {
        kind: replace(report, answered=False) if kind in _EXAMINES_GPUS and report.impairs else report
        for kind, report in health.items()
    }


def answer_report(instance: Instance, kind: HealthKind, context: DecisionContext) -> Step:
    """Act on an unhandled report now that the instance works again."""
    report = instance.health[kind]
    changes = {"health": {**instance.health, kind: replace(report, answered=True)}}
    rung = _LEVELS.get(kind, RepairLevel.CHECK)
    return escalate(instance, RepairNeed(rung, report.clause(kind), context.now, source=kind), context, changes)


def _reason(instance: Instance, event: events.HealthReported) -> str:
    """Return the reason of the report, also if only the sharing modes of the GPUs show it."""
    return reason_by_sharing(event.kind, event.status, event.sentence, instance.gpus_shared)


def is_about_mps(report: HealthReport) -> bool:
    """Return whether the report of ECS says only that the MPS daemon does not answer."""
    return report.status is HealthStatus.IMPAIRED and report.cleared and names_mps_daemon(report.sentence)


def _is_weaker(report: HealthReport, before: HealthReport) -> bool:
    """Return whether the report is about the MPS daemon while a report about a GPU stands, which it does not revoke."""
    return before.impairs and is_about_mps(report)


def _is_harmless(instance: Instance, event: events.HealthReported, context: DecisionContext) -> bool:
    """Return whether ECS calls a GPU impaired for a reason that is no fault of the instance.

    The reason is an error of a user's program, such as XID 31, or the MPS daemon. Such a program may run on any
    instance, and a rank with whole GPUs needs no MPS daemon. ECS itself takes the report back later, or never.
    """
    if event.status is not HealthStatus.IMPAIRED or event.kind != HealthKind.ACCELERATED_COMPUTE:
        return False
    if event.xid is None and names_mps_daemon(_reason(instance, event)):
        return True
    classes = xid_classes(event, context)
    return bool(classes) and classes <= HARMLESS


def cleared_by_check(health: Mapping[str, HealthReport], ended_at: datetime) -> dict[str, HealthReport]:
    """Return `health` with ECS's report about the GPUs cleared, because a health check has examined them since.

    ECS may show the GPUs as impaired for as long as it likes; a later report is judged again.
    """
    report = health.get(HealthKind.ACCELERATED_COMPUTE)
    if report is None or not report.impairs or report.since > ended_at:
        return dict(health)
    return {**health, HealthKind.ACCELERATED_COMPUTE: replace(report, cleared=True)}


_LEVELS = {HealthKind.SYSTEM_STATUS: RepairLevel.REPLACE, HealthKind.INSTANCE_STATUS: RepairLevel.REBOOT}
"""Repair levels for the status checks of EC2.

EC2's system check fails for the host under the instance, and another host cures that. EC2's instance check fails for
the instance itself, and a reboot cures that (EC2 user guide, status checks).
"""
_EXAMINES_GPUS = (HealthKind.ACCELERATED_COMPUTE, HealthKind.NODE_AGENT)
"""Health sources that examine GPUs. Our own health check decides about the GPUs. Other sources ask for no repair."""
