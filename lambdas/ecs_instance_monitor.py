"""EventBridge: somebody says something about a container instance (seed 001, part 3) or about the machine under it."""

from typing import Any

from gpu_recovery.aws.ecs_events import detail_of, instance_fact
from gpu_recovery.aws.health_events import is_health_event, notifications_of
from gpu_recovery.aws.wiring import logger, metrics, recovery, utc_now
from gpu_recovery.ecs_events.health import deliver


@metrics.log_metrics
@logger.inject_lambda_context(correlation_id_path="id", clear_state=True)
def handler(event: dict[str, Any], context: Any) -> None:
    """Tell the instance what ECS sees, or what its watchers say; raises on failure, so that Lambda retries."""
    if not is_health_event(event):
        recovery().handle(*instance_fact(detail_of(event), utc_now()))
        return
    for sentence in deliver(recovery(), notifications_of(event, utc_now())):
        logger.info("signal_passed_over", extra={"reason": sentence})
