"""EventBridge handler: record one event of our own bus in the event history, or roll up the days."""

from typing import Any

from gpu_recovery.aws.fields import fields_of
from gpu_recovery.aws.wiring import event_history, is_refused, logger, metrics, utc_now
from gpu_recovery.core.event_origin import OWN_SOURCE, RECORDED_SOURCES
from gpu_recovery.event_recorder.recorder import record
from gpu_recovery.event_recorder.roller import mark_late, roll_up_days


@metrics.log_metrics
@logger.inject_lambda_context(correlation_id_path="id", clear_state=True)
def handler(event: dict[str, Any], context: Any) -> None:
    """Record one event, or roll up the days if the schedule invokes the function.

    An event of another account, region or source is refused (`is_refused`).

    Raises:
        Exception: any failure. Lambda then retries, and finally sends the event to the dead-letter queue.
    """
    if is_refused(event, RECORDED_SOURCES):
        return
    fields, history, now = fields_of(event), event_history(), utc_now()
    if fields.text("source") != OWN_SOURCE:
        days = roll_up_days(history, now)
        logger.info("days_rolled_up", extra={"days": [day.isoformat() for day in days]})
        return
    fields = fields.required("detail-type").required("time")
    recorded = record(history, fields.text("detail-type"), fields.fields("detail").values, fields.text("time"))
    mark_late(history, recorded, now)
    logger.info("event_recorded", extra={"event": recorded.event_id})
