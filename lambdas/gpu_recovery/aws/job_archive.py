"""Job archive in S3: `jobs/<job>/spec.json` or `spec.yaml`, and `jobs/<job>/a01/attempt.json` for each attempt.

The archive serves users and their tools long after the tables have changed. The system itself never reads it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gpu_recovery.aws import ecs_requests
from gpu_recovery.aws.item_codec import encode
from gpu_recovery.core.attempt import Plan
from gpu_recovery.core.identifiers import attempt_id
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.job.spec import Backend
from gpu_recovery.core.ray.submission import submission_of
from gpu_recovery.wire.jobs import records_of

YAML, JSON = "application/yaml", "application/json"


def submitted_request(bucket: str, job_id: str, text: str) -> dict[str, Any]:
    """Build the PutObject request for the submitted text of a job."""
    kind, name = (JSON, "spec.json") if _is_json(text) else (YAML, "spec.yaml")
    return {"Bucket": bucket, "Key": f"{records_of(job_id)}{name}", "Body": text.encode(), "ContentType": kind}


def attempt_request(bucket: str, cluster: str, job: Job, plan: Plan, view: Mapping[str, Any]) -> dict[str, Any]:
    """Build the PutObject request for an attempt.

    Args:
        bucket: the S3 bucket.
        cluster: the ECS cluster's name.
        job: the job.
        plan: the plan of the attempt.
        view: the attempt as API clients see it. The request adds what was sent to the backend.
    """
    document = {
        "job_id": job.job_id,
        **view,
        "config": encode(job.spec),
        "sent": sent_request(cluster, job, plan),
        "backend": job.spec.backend.value,
        "backend_ids": list(plan.task_ids) or [attempt_id(job.job_id, plan.attempt)],
    }
    body = json.dumps(document, indent=1, ensure_ascii=False).encode()
    key = f"{records_of(job.job_id)}a{plan.attempt:02d}/attempt.json"
    return {"Bucket": bucket, "Key": key, "Body": body, "ContentType": JSON}


def sent_request(cluster: str, job: Job, plan: Plan) -> dict[str, Any] | None:
    """Return the request that was sent to the backend for the attempt.

    For a gang on ECS this is the request of rank 0. The requests of other ranks differ only in the rank and its
    instance. The address of rank 0's instance is read from EC2 at each launch and is not stored, so the instance id
    stands in its place. The launch signature and the client token, which depends on it, are left out.

    Returns:
        None if the request is unknown, for example for tasks that a user started.
    """
    if job.spec.backend is Backend.RAY:
        submission: dict[str, Any] = encode(submission_of(replace(job, attempt=plan.attempt)))
        return submission
    if job.started_by_person or not plan.instances or not plan.instances[0]:
        return None
    unsigned = replace(plan, signed=False)
    request = ecs_requests.rank_request(cluster, job, unsigned, 0, f"(private address of {plan.instances[0]})", "")
    return {name: value for name, value in request.items() if name != "clientToken"}


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
