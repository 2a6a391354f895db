"""SQS handler of jobs on Ray, and reader of driver logs.

Only this function reaches the Ray cluster. The queue is FIFO with one message group.
"""

import os
import sys
from dataclasses import replace
from functools import cache
from typing import Any

from gpu_recovery.aws.sqs_messages import bodies, hops_of
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
    """Process the jobs that the messages name, then place waiting jobs on the Ray pool; or answer a request for a log.

    A request for a log is a direct invocation with `{"logs": <attempt id>, "tail": n}`. Its answer contains at most
    `n` lines, and `end`: the number of log lines up to the last of these lines. `after` requests the lines after that
    many lines, instead of the newest. `grows` says that the driver is alive; then an unfinished last line is left out.

    Raises:
        ExceptionGroup: some jobs could not be processed or placed. All other jobs were.
    """
    if "logs" in event:
        text = _pool().logs(event["logs"], sys.maxsize)
        chunk = log_chunk_of(text, event["tail"], event.get("after"), grows=event.get("grows", False))
        return {"logs": "".join(f"{line}\n" for line in chunk.lines), "end": chunk.end}
    messages = tuple(bodies(event))
    recovery_loop = replace(recovery(), ray=DirectRayCommands(_pool(), ray_queue()), hops=hops_of(messages))
    job_ids = {str(body.get("job_id", "")) for body in messages}
    failures = run_each(lambda job_id: process_due_job(recovery_loop, job_id), sorted(job_ids - {""}))
    failures += run_each(lambda pool: run_ray_pass(recovery_loop, pool), [_pool()])
    raise_all("not everything on Ray could be done", failures)
    return None
