"""Calls to the function that reaches the Ray cluster: a queue message wakes it, an invocation reads a driver's log.

The queue is FIFO with a single message group, so the function never runs twice at a time for the queue. It never
submits and stops a driver at the same time, and two placement passes never count the same free GPUs.
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
"""Message group of every message in the queue."""
RAY_CALL_CONFIG = Config(retries={"mode": "standard", "total_max_attempts": 1}, connect_timeout=2, read_timeout=22)
"""A single try, with timeouts in seconds. The API must still have time to answer, and a cold start takes seconds."""
ERROR_TEXT_MAX = 300
"""Characters of the function's error that are passed on."""


class RayQueue:
    """`execution.ray.RayWaker` on SQS.

    client:    a boto3 SQS client.
    queue_url: the FIFO queue of the function that reaches the Ray cluster.
    """

    def __init__(self, client: Any, queue_url: str) -> None:
        self._client, self._url = client, queue_url

    def wake(self, job_id: str, key: str, hops: int = 1) -> None:
        """Send a message that wakes the function. SQS drops a repeated message within 5 minutes.

        Args:
            job_id: the job with a command for the cluster; "" for a placement pass.
            key: names the request. A message with the same job and key is a repetition.
            hops: the number of messages in a row that led to this message, itself included.
        """
        request = {"job_id": job_id, "key": key}
        digest = hashlib.sha256(json.dumps(request).encode()).hexdigest()
        self._client.send_message(
            QueueUrl=self._url,
            MessageBody=json.dumps({**request, "hops": hops}),
            MessageGroupId=GROUP,
            MessageDeduplicationId=digest,
        )


@cache
def _lambda() -> Any:
    return client("lambda", RAY_CALL_CONFIG)


class AwsRayLogs:
    """`job_api.dependencies.RayLogs` through the Lambda function `function`, which reaches the Ray cluster."""

    def __init__(self, function: str) -> None:
        self.function = function

    def read(self, submission_id: str, most: int, place: str | None, *, grows: bool) -> LogPage:
        """Read a page of the log of a driver.

        Args:
            submission_id: the driver's submission id on Ray.
            most: upper bound of lines.
            place: the position of the page before; None for the newest lines.
            grows: whether the driver still runs.

        Returns:
            The page. Its lines have no times.

        Raises:
            RayUnreachable: the function is missing, did not answer in time, or failed.
        """
        question = {"logs": submission_id, "tail": most, "after": int(place) if place else None, "grows": grows}
        try:
            answer = _lambda().invoke(FunctionName=self.function, Payload=json.dumps(question).encode())
        except (ReadTimeoutError, ConnectTimeoutError) as error:
            raise RayUnreachable("the function that reaches the Ray cluster did not answer in time") from error
        except ClientError as error:
            if error.response["Error"]["Code"] != "ResourceNotFoundException":
                raise
            raise RayUnreachable("the function that reaches the Ray cluster is not there") from error
        document: dict[str, Any] = json.loads(answer["Payload"].read() or b"null") or {}
        if "FunctionError" in answer:
            failure = f"{document.get('errorType', 'an error')}: {document.get('errorMessage', 'nothing said')}"
            raise RayUnreachable(failure[:ERROR_TEXT_MAX])
        text = str(document["logs"])
        lines = text.removesuffix("\n").split("\n") if text else []
        return LogPage(tuple((None, line) for line in lines), str(document["end"]))
