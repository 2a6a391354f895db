"""HTTP handler of the node API: agent reports, each about the instance of its token."""

from __future__ import annotations

from typing import Any

from gpu_recovery.aws.node_api_wiring import api, time_budget
from gpu_recovery.aws.wiring import logger, metrics


@metrics.log_metrics
@logger.inject_lambda_context(clear_state=True)
def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Answer one HTTP request (payload format 2.0)."""
    time_budget.start()
    return api().answer(event)
