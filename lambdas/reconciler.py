"""Scheduled handler: one reconcile cycle every minute."""

from typing import Any

from gpu_recovery.aws.snapshot_wiring import snapshot_writer
from gpu_recovery.aws.wiring import logger, metrics, recovery
from gpu_recovery.reconciler.reconcile import reconcile


@metrics.log_metrics
@logger.inject_lambda_context(clear_state=True)
def handler(event: dict[str, Any], context: Any) -> None:
    """Run one reconcile cycle, which ends before the function's timeout.

    Raises:
        ExceptionGroup: parts of the cycle failed. All other parts were done before.
    """
    reconcile(
        recovery(),
        seconds_left=lambda: context.get_remaining_time_in_millis() / 1000,
        snapshots=snapshot_writer(),
    )
