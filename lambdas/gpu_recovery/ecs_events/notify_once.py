"""Notifications about problems that belong to no record: one for an incident, however often its event is delivered."""

from __future__ import annotations

from datetime import timedelta

from gpu_recovery.core.commands import NotifyOperator
from gpu_recovery.recovery import Recovery

NOTIFIED_FOR = timedelta(hours=12)
"""Time for which an incident is not notified again.

It is longer than the retries of an event, and shorter than the shortest extension of a Capacity Block (a day): the next
warning about the block is sent.
"""


def notify_once(recovery: Recovery, message: NotifyOperator) -> None:
    """Notify operators, unless they were notified of the incident within NOTIFIED_FOR."""
    now = recovery.clock()
    if not recovery.store.is_notified(message.incident_id, now):
        recovery.notify(message)
        recovery.store.mark_notified(message.incident_id, now + NOTIFIED_FOR)
