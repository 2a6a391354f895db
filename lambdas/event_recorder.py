"""EventBridge handler: record one event of our own bus in the event history, and roll up the days now and then."""

from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from gpu_recovery.aws.event_history_wiring import event_history
from gpu_recovery.aws.fields import fields_of
from gpu_recovery.aws.wiring import is_refused, logger, metrics, utc_now
from gpu_recovery.core.errors import RecoveryError
from gpu_recovery.core.event_origin import RECORDED_SOURCES
from gpu_recovery.event_recorder.recorder import record
from gpu_recovery.event_recorder.roller import mark_late, roll_up_if_due


@metrics.log_metrics
@logger.inject_lambda_context(correlation_id_path="id", clear_state=True)
def handler(event: dict[str, Any], context: Any) -> None:
    """Record one event. If the days were not rolled up for a while and no other recorder does it, roll them up.

    An event of another account, region or source is refused (`is_refused`). A roll-up that fails is logged: the next
    event tries again, and this event is recorded nevertheless.

    Raises:
        Exception: the event could not be recorded. Lambda then retries, and finally sends the event to the dead-letter
            queue.
    """
    if is_refused(event, RECORDED_SOURCES):
        return
    fields, history, now = fields_of(event).required("detail-type").required("time"), event_history(), utc_now()
    recorded = record(history, fields.text("detail-type"), fields.fields("detail").values, fields.text("time"))
    mark_late(history, recorded, now)
    logger.info("event_recorded", extra={"event": recorded.event_id})
    try:
        days = roll_up_if_due(history, now, lambda: context.get_remaining_time_in_millis() / 1_000)
        if days:
            logger.info("days_rolled_up", extra={"days": [day.isoformat() for day in days]})
    except (RecoveryError, BotoCoreError, ClientError, ValueError, KeyError):  # the event is recorded all the same
        logger.exception("roll_up_failed")
