"""SQS FIFO, one message group: the only function that gives jobs their instances."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpu_recovery.aws.sqs_messages import bodies
from gpu_recovery.aws.wiring import logger, metrics, recovery
from gpu_recovery.core.identifiers import TICK
from gpu_recovery.scheduler.schedule import schedule

WHOLE_PASS = "/"
"""The key of a message that names nobody."""


@metrics.log_metrics
@logger.inject_lambda_context(clear_state=True)
def handler(event: dict[str, Any], context: Any) -> None:
    """One pass for all of the messages: each only says who has changed."""
    asked = tuple(_key(body) for body in bodies(event))
    logger.info("placed", extra={"jobs": schedule(recovery(), asked)})


def _key(body: Mapping[str, Any]) -> str:
    """Who has changed. What does not say asks for a whole pass."""
    if body.get("detail-type") == "Scheduled Event":
        return f"{TICK}/{body.get('id')}"
    return str(body.get("key", WHOLE_PASS))
