"""SQS FIFO, one message group: the only function that gives jobs their instances."""

from typing import Any

from gpu_recovery.aws.wiring import logger, metrics, recovery
from gpu_recovery.scheduling import schedule


@metrics.log_metrics
@logger.inject_lambda_context(clear_state=True)
def handler(event: dict[str, Any], context: Any) -> None:
    """One pass, however many messages asked for it: each only says that something changed, so none is read."""
    logger.info("placed", extra={"jobs": schedule(recovery())})
