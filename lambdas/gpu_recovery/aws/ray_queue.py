"""The queue that wakes the function in the Ray cluster's network.

FIFO with one message group: that function is alone, so a driver is never submitted and stopped at the same time, and
no two passes count the same free GPUs.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

GROUP = "ray"


class RayQueue:
    """`acts.of_ray.Waker` on SQS."""

    def __init__(self, client: Any, queue_url: str) -> None:
        self._client, self._url = client, queue_url

    def wake(self, job_id: str, key: str) -> None:
        body = json.dumps({"job_id": job_id, "key": key})
        name = hashlib.sha256(body.encode()).hexdigest()
        self._client.send_message(
            QueueUrl=self._url, MessageBody=body, MessageGroupId=GROUP, MessageDeduplicationId=name
        )
