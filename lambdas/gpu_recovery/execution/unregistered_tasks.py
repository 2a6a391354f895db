"""Ranks that a person started and no event told us of: looked for before anything is concluded from their silence."""

from __future__ import annotations

from collections.abc import Iterator

from gpu_recovery.core.attempt import Plan
from gpu_recovery.core.identifiers import attempt_of
from gpu_recovery.core.job.adoption import task_identity
from gpu_recovery.core.task import TaskFact
from gpu_recovery.ports.actions import Actions
from gpu_recovery.ports.store import InstanceStore


def instance_of(store: InstanceStore, actions: Actions, fact: TaskFact) -> str:
    """The instance a person's task is on: ECS names only its registration. "" if nobody knows."""
    if not fact.container_instance_id:
        return ""
    known = store.instance_of(fact.container_instance_id)
    if known:
        return known
    described = actions.describe_instance(fact.container_instance_id)
    return described[0] if described else ""


def unregistered_ranks(actions: Actions, plan: Plan) -> Iterator[tuple[int, TaskFact]]:
    """The running tasks of a person's gang that its plan does not know, with their ranks."""
    if all(plan.task_ids):
        return
    for fact in actions.running_tasks():
        says = task_identity(fact.environment)
        if says is None or says.job_id != plan.job_id or attempt_of(fact.started_by) is not None:
            continue
        if says.world_size == len(plan.task_ids) and not plan.task_ids[says.rank]:
            yield says.rank, fact
