"""What the functions send: requests to ECS and S3, and the messages between the functions themselves."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from gpu_recovery.aws import actions
from gpu_recovery.aws import ray_client as ray_logs
from gpu_recovery.aws.ecs_requests import CheckTask, check_request, rank_request
from gpu_recovery.aws.job_archive import attempt_request, submitted_request
from gpu_recovery.aws.ray_client import RayQueue
from gpu_recovery.aws.settings import LambdaSettings
from gpu_recovery.core.identifiers import TICK, attempt_id
from gpu_recovery.core.instance.record import CheckRun

from tests.aws.environment import CLUSTER, FUNCTION, QUEUE_URL
from tests.aws.records import NOW, instance, job, plan, spec


def requests() -> dict[str, Any]:
    """What ECS and S3 are sent: the requests for a rank and for a health check, and the objects of a job."""
    gang = job(attempt=1, spec=spec(stop_timeout_s=60, checkpoint_dir="/ckpt"))
    checked = instance(check=CheckRun("check/i-0/1", since=NOW, focus=("0",), signed=True))
    task = CheckTask("gpu-health-check", "bucket", 2, True, 1_200)
    body = attempt_request("bucket", CLUSTER, gang, plan(), {"view": "of the attempt"})
    return {
        "rank": rank_request(CLUSTER, gang, replace(plan(), epochs=(1, 1), signed=True), 0, "10.0.0.1", "key"),
        "check": check_request(CLUSTER, task, checked, "check/i-0/1", 0, "key"),
        "submitted as JSON": submitted_request("bucket", "job", "{}")["Key"],
        "submitted as YAML": submitted_request("bucket", "job", "a: b")["Key"],
        "attempt": {**body, "Body": sorted(json.loads(body["Body"]))},
    }


def messages() -> dict[str, Any]:
    """What the scheduler, and the function in the network of the Ray cluster, are called and asked with."""
    sent = _Sent()
    acting = actions.AwsActions(LambdaSettings.from_environment(FUNCTION), lambda: NOW)
    with patch.object(actions, "client", lambda *_: sent), patch.object(ray_logs, "_lambda", lambda: sent):
        acting.poke_scheduler("job/1")
        RayQueue(sent, QUEUE_URL).wake("job", "job/1")
        ray_logs.AwsRayLogs("gpu-recovery-ray_runner").read(attempt_id("job", 1), 100, "7", grows=True)
    return {"key of a tick": TICK, "sent": sent.calls}


class _Sent:
    """A client of AWS that writes down what it is called with."""

    def __init__(self) -> None:
        self.calls: list[Mapping[str, Any]] = []

    def __getattr__(self, operation: str) -> Callable[..., Mapping[str, Any]]:
        def call(**request: Any) -> Mapping[str, Any]:
            self.calls.append({"operation": operation, **unpacked(request)})
            return {"Payload": io.BytesIO(b'{"logs": "", "end": 0}')}

        return call


def unpacked(request: Mapping[str, Any]) -> dict[str, Any]:
    """The request with the JSON documents in it read."""
    return {name: _read(value) for name, value in request.items()}


def _read(value: Any) -> Any:
    is_document = isinstance(value, str | bytes) and value[:1] in ("{", b"{")
    return json.loads(value) if is_document else value
