"""GPU Operational Events in the history of an instance: what they would have decided. Nothing is decided by them."""

from __future__ import annotations

import re
from datetime import timedelta

from gpu_recovery.core import events
from gpu_recovery.core.gpu_events import comparison, named_events
from gpu_recovery.core.health_signals import HealthStatus
from gpu_recovery.core.instance.record import Instance
from gpu_recovery.core.state_machine import DecisionContext, HistoryEntry, Ignore, Step, bounded_history

ONE_ENTRY_EACH = timedelta(minutes=10)
"""Time within which the same sentence is recorded once: a storm of events must not push decisions out of the history.
"""
_XID = re.compile(r"\bXID[ _](\d{1,4})\b")


def gpu_events_reported(instance: Instance, event: events.GpuEventsReported, context: DecisionContext) -> Step | Ignore:
    """Record what the events would have decided, and whether the XIDs decide the same."""
    reports = (report for report in instance.health.values() if report.status is HealthStatus.IMPAIRED)
    xids = {int(number) for report in reports for number in _XID.findall(report.sentence)}
    sentence = comparison(event.events, xids, context.policy.xid_profile)
    if not sentence:
        return Ignore("neither the events nor the XIDs decide anything")
    name = type(event).__name__
    for entry in instance.history:
        if entry.event == name and entry.reason.startswith(sentence) and context.now - entry.at < ONE_ENTRY_EACH:
            return Ignore("it is recorded already")
    status = instance.status
    entry = HistoryEntry(context.now, status, status, name, 0, f"{sentence} ({named_events(event.events)})")
    history = bounded_history(instance.history, entry, context.policy.history_max)
    return Step(status, instance.reason, {"history": history})
