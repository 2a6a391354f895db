"""EventBridge handler: a training task, or a task of the node agent, started or ended (RUNNING or STOPPED)."""

from typing import Any

from gpu_recovery.aws.ecs_events import detail_of, task_fact
from gpu_recovery.aws.wiring import is_refused, logger, metrics, settings, timed_recovery, utc_now
from gpu_recovery.ecs_events import agent_tasks, tasks


@metrics.log_metrics
@logger.inject_lambda_context(correlation_id_path="id", clear_state=True)
def handler(event: dict[str, Any], context: Any) -> None:
    """Record the start or the end of one rank, or the instance of a node agent.

    An event of another account or region is refused (`is_refused`).

    Raises:
        Exception: any failure. Lambda then retries, and finally sends the event to the dead-letter queue.
    """
    if is_refused(event):
        return
    fact = task_fact(detail_of(event), utc_now())
    if agent_tasks.is_agent_task(fact, settings().agent_family):
        agent_tasks.agent_task_changed(timed_recovery(context), fact)
    else:
        tasks.task_changed(timed_recovery(context), fact)
