"""SQS handler: one pass of the scheduler. Only this function gives instances to jobs. Its FIFO queue has one group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from gpu_recovery.aws.snapshot_wiring import snapshot_writer
from gpu_recovery.aws.sqs_messages import bodies, hops_of
from gpu_recovery.aws.wiring import logger, metrics, timed_recovery
from gpu_recovery.core.identifiers import TICK
from gpu_recovery.scheduler.console_snapshot import QueueSnapshots
from gpu_recovery.scheduler.schedule import run_pass

WHOLE_PASS = "/"
"""The key of a message that names no record."""
snapshots = cache(lambda: QueueSnapshots(snapshot_writer()))
"""Return the writer of the queue's snapshot, which remembers between invocations what it wrote."""


@metrics.log_metrics
@logger.inject_lambda_context(clear_state=True)
def handler(event: dict[str, Any], context: Any) -> None:
    """Run one pass of the scheduler for all messages. A message only names the record that changed."""
    messages = tuple(bodies(event))
    loop = replace(timed_recovery(context), hops=hops_of(messages))
    result = run_pass(loop, tuple(map(_key, messages)))
    logger.info("placed", extra={"jobs": result.placed})
    snapshots().write(loop, result)


def _key(body: Mapping[str, Any]) -> str:
    """Return the key of a message: what changed, or the tick. A message without a key asks for a whole pass."""
    if body.get("detail-type") == "Scheduled Event":
        return f"{TICK}/{body.get('id')}"
    return str(body.get("key", WHOLE_PASS))
