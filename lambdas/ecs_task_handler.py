"""EventBridge: a training task started or ended (seed 001, part 1)."""

from typing import Any

from gpu_recovery.aws.ecs_events import detail_of, task_fact
from gpu_recovery.aws.wiring import logger, metrics, recovery, utc_now
from gpu_recovery.ecs_events import tasks


@metrics.log_metrics
@logger.inject_lambda_context(correlation_id_path="id", clear_state=True)
def handler(event: dict[str, Any], context: Any) -> None:
    """Enter what happened to one rank; raises on failure, so that Lambda retries and then keeps the event."""
    tasks.task_changed(recovery(), task_fact(detail_of(event), utc_now()))
