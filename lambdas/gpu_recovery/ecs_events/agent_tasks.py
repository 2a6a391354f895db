"""Remember on which instance a task of the node agent's daemon service runs.

The agent signs its reports with the role of its task, and such a signature names the task. Only ECS says on which
instance a task runs, so the node API accepts a report of a task only after the event of ECS.
"""

from __future__ import annotations

from gpu_recovery.core.heartbeat import AGENT_TASK_TTL
from gpu_recovery.core.launch_signature import is_of_family
from gpu_recovery.core.task import LastStatus, TaskFact
from gpu_recovery.execution.task_ownership import instance_of
from gpu_recovery.ports.errors import TryAgainSoon
from gpu_recovery.recovery import Recovery


def is_agent_task(fact: TaskFact, family: str) -> bool:
    """Return whether the task belongs to the agent's service. `family` is its task definition family, "" for none."""
    return bool(family) and is_of_family(fact, family)


def agent_task_changed(recovery: Recovery, fact: TaskFact) -> None:
    """Save the instance of a task of the agent that runs.

    Raises:
        TryAgainSoon: the instance of the task is not known yet.
    """
    if fact.last_status != LastStatus.RUNNING:
        return  # the record of an ended task expires by itself; its credentials expire before
    instance_id = instance_of(recovery.store, recovery.actions, fact)
    if not instance_id:
        raise TryAgainSoon(f"the instance of task {fact.task_id} of the node agent is not known yet")
    recovery.store.save_agent_task(fact.task_id, instance_id, recovery.clock() + AGENT_TASK_TTL)
