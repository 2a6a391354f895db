"""EventBridge: ECS says something about a container instance (seed 001, part 3)."""

from typing import Any

from gpu_recovery.aws.task_facts import detail_of, instance_fact
from gpu_recovery.aws.wiring import logger, metrics, recovery, utc_now


@metrics.log_metrics
@logger.inject_lambda_context(correlation_id_path="id", clear_state=True)
def handler(event: dict[str, Any], context: Any) -> None:
    """Tell the instance what ECS sees; raises on failure, so that Lambda retries and then keeps the event."""
    recovery().tell(*instance_fact(detail_of(event), utc_now()))
