"""SQS FIFO, one message group: the only function that gives jobs their instances."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from gpu_recovery.aws.wiring import logger, metrics, recovery
from gpu_recovery.core.names import TICK
from gpu_recovery.scheduling import schedule

WHOLE_PASS = "/"
"""The key of a message that names nobody."""


@metrics.log_metrics
@logger.inject_lambda_context(clear_state=True)
def handler(event: dict[str, Any], context: Any) -> None:
    """One pass for all of the messages: each only says who has changed."""
    logger.info("placed", extra={"jobs": schedule(recovery(), tuple(_keys(event)))})


def _keys(event: Any) -> Iterator[str]:
    """Who has changed. What says nothing of the kind asks for a whole pass and is gone: it blocks nobody."""
    records = event.get("Records") if isinstance(event, dict) else None
    for record in records if isinstance(records, list) else ():
        try:
            body = json.loads(record["body"])
            yield f"{TICK}/{body['id']}" if body.get("detail-type") == "Scheduled Event" else str(body["key"])
        except (ValueError, KeyError, TypeError, AttributeError):
            logger.warning("a message without a key")
            yield WHOLE_PASS
