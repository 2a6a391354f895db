"""Schedule: every minute, whatever no event told us."""

from typing import Any

from gpu_recovery.aws.wiring import logger, metrics, recovery
from gpu_recovery.reconciler.reconcile import reconcile


@metrics.log_metrics
@logger.inject_lambda_context(clear_state=True)
def handler(event: dict[str, Any], context: Any) -> None:
    """One round; raises what failed once everything else is done."""
    reconcile(recovery())
