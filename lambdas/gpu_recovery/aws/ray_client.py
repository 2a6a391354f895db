"""Calls to the one function that reaches the Ray cluster: its queue wakes it, an invocation reads a driver's log.

The queue is FIFO with one message group: the function runs alone. So it never submits and stops a driver at the same
time, and no two passes count the same free GPUs.
"""

from __future__ import annotations

import hashlib
import json
from functools import cache
from typing import Any

from botocore.config import Config
from botocore.exceptions import ClientError, ConnectTimeoutError, ReadTimeoutError

from gpu_recovery.aws.clients import client
from gpu_recovery.core.errors import RayUnreachable
from gpu_recovery.core.log_location import LogPage

GROUP = "ray"
"""The queue's one message group."""
RAY_CALL_CONFIG = Config(retries={"mode": "standard", "total_max_attempts": 1}, connect_timeout=2, read_timeout=22)
"""One try, which ends while the API itself still has time to answer; the function's first start takes seconds."""
ERROR_TEXT_MAX = 300


class RayQueue:
    """`execution.ray.Waker` on SQS; `client` is a boto3 SQS client."""

    def __init__(self, client: Any, queue_url: str) -> None:
        self._client, self._url = client, queue_url

    def wake(self, job_id: str, key: str) -> None:
        body = json.dumps({"job_id": job_id, "key": key})
        name = hashlib.sha256(body.encode()).hexdigest()
        self._client.send_message(
            QueueUrl=self._url, MessageBody=body, MessageGroupId=GROUP, MessageDeduplicationId=name
        )


@cache
def _lambda() -> Any:
    return client("lambda", RAY_CALL_CONFIG)


class AwsRayLogs:
    """`job_api.dependencies.RayLogs` through the function of this name."""

    def __init__(self, function: str) -> None:
        self.function = function

    def read(self, submission_id: str, most: int, place: str | None, *, grows: bool) -> LogPage:
        question = {"logs": submission_id, "tail": most, "after": int(place) if place else None, "grows": grows}
        try:
            answer = _lambda().invoke(FunctionName=self.function, Payload=json.dumps(question).encode())
        except (ReadTimeoutError, ConnectTimeoutError) as silence:
            raise RayUnreachable("the function that reaches the Ray cluster did not answer in time") from silence
        except ClientError as error:
            if error.response["Error"]["Code"] != "ResourceNotFoundException":
                raise
            raise RayUnreachable("the function that reaches the Ray cluster is not there") from error
        told: dict[str, Any] = json.loads(answer["Payload"].read() or b"null") or {}
        if "FunctionError" in answer:
            said = f"{told.get('errorType', 'an error')}: {told.get('errorMessage', 'nothing said')}"
            raise RayUnreachable(said[:ERROR_TEXT_MAX])
        text = str(told["logs"])
        lines = text.removesuffix("\n").split("\n") if text else []
        return LogPage(tuple((None, line) for line in lines), str(told["end"]))
