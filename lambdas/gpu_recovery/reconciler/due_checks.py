"""Due polls of health checks: ECS is asked about the tasks of many checks in one call.

All instances of a large gang are checked at once, so their polls are due at once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime

from gpu_recovery.core.instance.record import Instance, InstanceStatus
from gpu_recovery.core.task import TaskFact
from gpu_recovery.recovery import Recovery

CHECKED = (InstanceStatus.CHECKING, InstanceStatus.VERIFYING)
"""Statuses in which a poll asks about the health check."""


def describe_due_checks(recovery: Recovery, records: Collection[Instance]) -> Mapping[str, TaskFact]:
    """Return ECS's description of the health check of each of `records` with a due poll, by instance id.

    Checks without a recorded task, and tasks that ECS no longer knows, are left out.
    """
    now = recovery.clock()
    task_ids = {task_id: record.instance_id for record in records if (task_id := _task_to_poll(record, now))}
    facts = recovery.actions.describe_tasks(tuple(task_ids))
    return {task_ids[fact.task_id]: fact for fact in facts}


def _task_to_poll(record: Instance, now: datetime) -> str:
    """Return the task of the instance's health check if its poll is due, and not its deadline; "" otherwise."""
    is_polled = record.status in CHECKED and record.look_at is not None and record.look_at <= now
    is_over = record.deadline_at is not None and record.deadline_at <= now
    return record.check.task_id if record.check is not None and is_polled and not is_over else ""
