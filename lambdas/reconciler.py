"""Scheduled handler: one reconcile cycle every minute."""

from typing import Any

from gpu_recovery.aws.wiring import logger, metrics, timed_recovery
from gpu_recovery.reconciler.reconcile import reconcile


@metrics.log_metrics
@logger.inject_lambda_context(clear_state=True)
def handler(event: dict[str, Any], context: Any) -> None:
    """Run one reconcile cycle.

    Raises:
        ExceptionGroup: parts of the cycle failed. All other parts were done before.
    """
    reconcile(timed_recovery(context))
