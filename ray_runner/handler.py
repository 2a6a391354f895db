"""SQS FIFO, one message group: the only function that reaches the Ray cluster. Called directly it reads a log."""

import os
import sys
from dataclasses import replace
from functools import cache
from typing import Any

from gpu_recovery.aws.sqs_messages import bodies
from gpu_recovery.aws.wiring import logger, metrics, ray_queue, recovery
from gpu_recovery.core.ray.log_chunk import log_chunk_of
from gpu_recovery.execution.ray import DirectRayCommands
from gpu_recovery.partial_failures import raise_all, run_each
from gpu_recovery.reconciler.reconcile import process_due_job
from gpu_recovery.scheduler.ray_pool import run_ray_pass

from ray_runner.cluster import RayCluster


@cache
def _pool() -> RayCluster:
    return RayCluster(os.environ["RAY_DASHBOARD"], os.environ["RAY_CONTROL_STORE"])


@metrics.log_metrics
@logger.inject_lambda_context(clear_state=True)
def handler(event: dict[str, Any], context: Any) -> dict[str, Any] | None:
    """Open the jobs that messages name, then let go whoever fits; `{"logs": <attempt id>, "tail": n}` is a question.

    Its answer has the lines, and `end`: how many there are up to the last of them. With `after`, those that follow so
    many; with `grows`, whole lines only.
    """
    if "logs" in event:
        text = _pool().logs(event["logs"], sys.maxsize)
        found = log_chunk_of(text, event["tail"], event.get("after"), grows=event.get("grows", False))
        return {"logs": "".join(f"{line}\n" for line in found.lines), "end": found.end}
    loop = replace(recovery(), ray=DirectRayCommands(_pool(), ray_queue()))
    named = {str(body.get("job_id", "")) for body in bodies(event)}
    failures = run_each(lambda job_id: process_due_job(loop, job_id), sorted(named - {""}))
    failures += run_each(lambda pool: run_ray_pass(loop, pool), [_pool()])
    raise_all("not everything on Ray could be done", failures)
    return None
