"""HTTP handler of the job API, for users and their programs.

The routes are in `gpu_recovery.job_api`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from gpu_recovery.aws.http_resolver import resolver
from gpu_recovery.aws.job_api_wiring import dependencies
from gpu_recovery.aws.snapshot_start import before_snapshot
from gpu_recovery.aws.wiring import logger, metrics
from gpu_recovery.job_api.router import ROUTES

AT_FIRST_USE = (
    "gpu_recovery.job_api.models.job_spec",
    "gpu_recovery.job_api.models.requests",
    "gpu_recovery.job_api.diagnosis_answers",
    "gpu_recovery.job_api.yaml_reader",
    "gpu_recovery.scheduler.schedule",
)
"""Modules that only some requests need. Such a request imports them."""

app = resolver(ROUTES, dependencies)
before_snapshot(dependencies, *(lambda name=name: import_module(name) for name in AT_FIRST_USE))


@metrics.log_metrics
@logger.inject_lambda_context(clear_state=True)
def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Answer one HTTP request (payload format 2.0)."""
    return app.resolve(event, context)
