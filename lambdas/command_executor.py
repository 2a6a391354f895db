"""Internal handler: execute the commands that an API function left in one record."""

from typing import Any

from gpu_recovery.aws.command_executor import load_record
from gpu_recovery.aws.wiring import logger, metrics, timed_recovery


@metrics.log_metrics
@logger.inject_lambda_context(clear_state=True)
def handler(event: dict[str, Any], context: Any) -> None:
    """Execute the commands of the record that the request names. A repeated request finds nothing to do.

    Raises:
        Exception: any failure. The reconciler executes the remaining commands when their lease has expired.
    """
    loop = timed_recovery(context)
    loop.execute_left(lambda: load_record(loop.store, event))
