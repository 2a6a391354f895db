"""SQS FIFO, one message group: the only function that gives jobs their instances."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from gpu_recovery.aws.wiring import logger, metrics, recovery
from gpu_recovery.core.names import TICK
from gpu_recovery.scheduling import schedule


@metrics.log_metrics
@logger.inject_lambda_context(clear_state=True)
def handler(event: dict[str, Any], context: Any) -> None:
    """One pass for all of the messages: each only says who has changed."""
    logger.info("placed", extra={"jobs": schedule(recovery(), tuple(_keys(event)))})


def _keys(event: dict[str, Any]) -> Iterator[str]:
    """Who has changed. A message that says nothing of the kind asks for a whole pass and is gone: it blocks nobody."""
    for record in event.get("Records", []):
        try:
            body = json.loads(record["body"])
            yield f"{TICK}/{body['id']}" if body.get("detail-type") == "Scheduled Event" else str(body["key"])
        except (ValueError, KeyError, TypeError, AttributeError):
            logger.warning("a message without a key", extra={"message_id": record.get("messageId")})
            yield "unknown/0"
