"""Refusal of tasks that others started under names of ours: such a task changes nothing and is not stopped."""

from __future__ import annotations

from gpu_recovery.core.attempt import Plan
from gpu_recovery.core.commands import NotifyOperator
from gpu_recovery.recovery import Recovery


def refuse_task(recovery: Recovery, message: NotifyOperator) -> None:
    """Notify operators once of a task.

    Args:
        message: the notification. Its incident id names the task, and is the key of a stored mark: an attempt without
            ranks.
    """
    if recovery.store.load_progress(message.incident_id, 0) is None:
        recovery.notify(message)
        recovery.store.begin_attempt(Plan(message.incident_id, 0, ()))
