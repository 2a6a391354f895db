"""Unregistered tasks: running ranks of an adopted job that no ECS event reported.

They are searched before a missing rank is treated as ended.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpu_recovery.core.attempt import Plan
from gpu_recovery.core.identifiers import attempt_of
from gpu_recovery.core.job.adoption import task_identity
from gpu_recovery.core.task import TaskFact
from gpu_recovery.ports.actions import Actions


def unregistered_ranks(actions: Actions, plan: Plan) -> Iterator[tuple[int, TaskFact]]:
    """Yield (rank, task) for each running task of an adopted job that the job's plan does not contain."""
    if all(plan.task_ids):
        return
    for fact in actions.running_tasks():
        identity = task_identity(fact.environment)
        if identity is None or identity.job_id != plan.job_id or attempt_of(fact.started_by) is not None:
            continue
        if identity.world_size == len(plan.task_ids) and not plan.task_ids[identity.rank]:
            yield identity.rank, fact
