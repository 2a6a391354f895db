"""EventBridge handler: a DCGM health check task ended. The rule selects STOPPED tasks only."""

from typing import Any

from gpu_recovery.aws.ecs_events import detail_of, task_fact
from gpu_recovery.aws.wiring import is_refused, logger, metrics, timed_recovery, utc_now
from gpu_recovery.ecs_events import tasks


@metrics.log_metrics
@logger.inject_lambda_context(correlation_id_path="id", clear_state=True)
def handler(event: dict[str, Any], context: Any) -> None:
    """Deliver the verdict of the health check to its instance.

    An event of another account or region is refused (`is_refused`).

    Raises:
        Exception: any failure. Lambda then retries, and finally sends the event to the dead-letter queue.
    """
    if is_refused(event):
        return
    tasks.check_changed(timed_recovery(context), task_fact(detail_of(event), utc_now()))
