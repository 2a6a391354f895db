"""GPU Operational Events in the history of an instance: what they would have decided. Nothing is decided by them."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

from gpu_recovery.core import events
from gpu_recovery.core.gpu_events import comparison, missing_events, named_events
from gpu_recovery.core.health_check import CheckOutcome, Verdict
from gpu_recovery.core.health_signals import HealthStatus
from gpu_recovery.core.instance.record import Instance
from gpu_recovery.core.state_machine import DecisionContext, HistoryEntry, Ignore, Step, bounded_history

ONE_ENTRY_EACH = timedelta(minutes=10)
"""Time within which the same sentence is recorded once: a storm of events must not push decisions out of the history.
"""
_FOUND = (CheckOutcome.REBOOT, CheckOutcome.REPLACE)
_XID = re.compile(r"\bXID[ _](\d{1,4})\b")


def gpu_events_reported(instance: Instance, event: events.GpuEventsReported, context: DecisionContext) -> Step | Ignore:
    """Record what the events would have decided, and whether the XIDs decide the same.

    And record whether the agent reads events at all, without an entry in the history.
    """
    changes: dict[str, Any] = (
        {} if instance.reads_gpu_events is event.are_read else {"reads_gpu_events": event.are_read}
    )
    found = _entry(instance, event, context)
    if isinstance(found, HistoryEntry):
        changes["history"] = bounded_history(instance.history, found, context.policy.history_max)
    elif not changes:
        return found
    return Step(instance.status, instance.reason, changes)


def _entry(instance: Instance, event: events.GpuEventsReported, context: DecisionContext) -> HistoryEntry | Ignore:
    """Return the entry of the history about the events, or why there is none."""
    if not event.events:
        return Ignore("it is known whether the agent reads events, and there is none")
    reports = (report for report in instance.health.values() if report.status is HealthStatus.IMPAIRED)
    xids = {int(number) for report in reports for number in _XID.findall(report.sentence)}
    sentence = comparison(event.events, xids, context.policy.xid_profile)
    if not sentence:
        return Ignore("neither the events nor the XIDs decide anything")
    name = type(event).__name__
    for entry in instance.history:
        if entry.event == name and entry.reason.startswith(sentence) and event.at - entry.at < ONE_ENTRY_EACH:
            return Ignore("it is recorded already")
    status = instance.status
    return HistoryEntry(context.now, status, status, name, 0, f"{sentence} ({named_events(event.events)})")


def with_missing_events(instance: Instance, step: Step, verdict: Verdict, context: DecisionContext) -> Step:
    """Return the step of a check that ended, with an entry if the check found a fault and no event was read before.

    Without an agent that reads events, nothing is said.
    """
    if not instance.reads_gpu_events or verdict.outcome not in _FOUND:
        return step
    name, since = events.GpuEventsReported.__name__, (instance.incident_since or instance.status_at) - ONE_ENTRY_EACH
    if any(entry.event == name and entry.at >= since for entry in instance.history):
        return step
    status = instance.status
    entry = HistoryEntry(context.now, status, status, name, 0, missing_events(verdict.outcome))
    history = bounded_history(step.changes.get("history", instance.history), entry, context.policy.history_max)
    return replace(step, changes={**step.changes, "history": history})
