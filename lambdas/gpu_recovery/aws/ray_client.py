"""What drivers wrote, from the one function that reaches the Ray cluster."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from botocore.config import Config
from botocore.exceptions import ClientError, ConnectTimeoutError, ReadTimeoutError

from gpu_recovery.aws.clients import client
from gpu_recovery.core.log_location import LogPage
from gpu_recovery.job_api.dependencies import RayAway

SHORT = Config(retries={"mode": "standard", "total_max_attempts": 1}, connect_timeout=2, read_timeout=22)
"""One try, which ends while the API itself still has time to answer; the function's first start takes seconds."""
SAID_MAX = 300


@cache
def _lambda() -> Any:
    return client("lambda", SHORT)


class AwsRayLogs:
    """`routes.desk.RayLogs` through the function of this name."""

    def __init__(self, function: str) -> None:
        self.function = function

    def read(self, submission_id: str, most: int, place: str | None, *, grows: bool) -> LogPage:
        question = {"logs": submission_id, "tail": most, "after": int(place) if place else None, "grows": grows}
        try:
            answer = _lambda().invoke(FunctionName=self.function, Payload=json.dumps(question).encode())
        except (ReadTimeoutError, ConnectTimeoutError) as silence:
            raise RayAway("the function that reaches the Ray cluster did not answer in time") from silence
        except ClientError as error:
            if error.response["Error"]["Code"] != "ResourceNotFoundException":
                raise
            raise RayAway("the function that reaches the Ray cluster is not there") from error
        told: dict[str, Any] = json.loads(answer["Payload"].read() or b"null") or {}
        if "FunctionError" in answer:
            said = f"{told.get('errorType', 'an error')}: {told.get('errorMessage', 'nothing said')}"
            raise RayAway(said[:SAID_MAX])
        text = str(told["logs"])
        lines = text.removesuffix("\n").split("\n") if text else []
        return LogPage(tuple((None, line) for line in lines), str(told["end"]))
