"""HTTP handler of the job API, for users and their programs.

The routes are in `gpu_recovery.job_api`.
"""

from __future__ import annotations

from typing import Any

from gpu_recovery.aws.http_resolver import resolver
from gpu_recovery.aws.job_api_wiring import dependencies
from gpu_recovery.aws.wiring import logger, metrics
from gpu_recovery.job_api.router import ROUTES

app = resolver(ROUTES, dependencies)


@metrics.log_metrics
@logger.inject_lambda_context(clear_state=True)
def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Answer one HTTP request (payload format 2.0)."""
    return app.resolve(event, context)
