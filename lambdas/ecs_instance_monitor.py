"""EventBridge handler: container instance events, EC2 state, status checks, Spot, AWS Health.

A container instance event is an observation of ECS. Every other event is a report of a health source: EC2, AWS Health,
CloudWatch (alarms on status checks) and ECS.
"""

from typing import Any

from gpu_recovery.aws.ecs_events import detail_of, instance_fact
from gpu_recovery.aws.health_events import is_health_event, notifications_of
from gpu_recovery.aws.wiring import is_refused, logger, metrics, timed_recovery, utc_now
from gpu_recovery.ecs_events.health import deliver


@metrics.log_metrics
@logger.inject_lambda_context(correlation_id_path="id", clear_state=True)
def handler(event: dict[str, Any], context: Any) -> None:
    """Deliver an ECS observation, or the health reports of a health source, to the instances.

    Health reports that no record uses are logged with the reason.

    An event of another account or region is refused (`is_refused`).

    Raises:
        Exception: any failure. Lambda then retries, and finally sends the event to the dead-letter queue.
    """
    if is_refused(event):
        return
    if not is_health_event(event):
        timed_recovery(context).handle(*instance_fact(detail_of(event), utc_now()))
        return
    for reason in deliver(timed_recovery(context), notifications_of(event, utc_now())):
        logger.info("signal_passed_over", extra={"reason": reason})
