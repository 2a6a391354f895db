"""Call of the function that executes the commands which the API functions leave in records, and its parser."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from botocore.config import Config

from gpu_recovery.aws.clients import client
from gpu_recovery.core.errors import RecoveryError
from gpu_recovery.core.instance.record import Instance
from gpu_recovery.core.job.record import Job
from gpu_recovery.ports.store import Store

WAKE_CONFIG = Config(retries={"mode": "standard", "total_max_attempts": 2}, connect_timeout=1, read_timeout=2)
"""Two tries, with timeouts in seconds: a node agent waits 5 s for its answer, and nothing depends on the call."""


class RequestInvalid(RecoveryError):
    """The request names neither a job nor an instance."""


class CommandExecutor:
    """Wakes the command executor, the Lambda function with the name `function`."""

    def __init__(self, function: str) -> None:
        self.function = function

    @cached_property
    def _lambda(self) -> Any:
        return client("lambda", WAKE_CONFIG)

    def wake(self, record: Job | Instance) -> None:
        """Invoke the function asynchronously for one record. The request names the record and nothing else."""
        payload = json.dumps(request_of(record)).encode()
        self._lambda.invoke(FunctionName=self.function, InvocationType="Event", Payload=payload)


def request_of(record: Job | Instance) -> dict[str, str]:
    """Return the request to execute the commands that were left in `record`."""
    if isinstance(record, Job):
        return {"job_id": record.job_id}
    return {"instance_id": record.instance_id}


def load_record(store: Store, request: Mapping[str, Any]) -> Job | Instance | None:
    """Load the record that the request names.

    Returns:
        The record; None if there is none.

    Raises:
        RequestInvalid: the request names no record.
    """
    match request:
        case {"job_id": str(job_id)}:
            return store.load_job(job_id)
        case {"instance_id": str(instance_id)}:
            return store.load_instance(instance_id)
    raise RequestInvalid("the request names neither a job nor an instance")
