"""The records of jobs in S3: `jobs/<job>/spec.json` or `spec.yaml`, and `jobs/<job>/a01/attempt.json` for each attempt.

They are for people and their tools, long after the tables have moved on: nothing here is ever read again by us.
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
    """PutObject for the text as it was submitted."""
    kind, name = (JSON, "spec.json") if _is_json(text) else (YAML, "spec.yaml")
    return {"Bucket": bucket, "Key": f"{records_of(job_id)}{name}", "Body": text.encode(), "ContentType": kind}


def attempt_request(bucket: str, cluster: str, job: Job, plan: Plan, view: Mapping[str, Any]) -> dict[str, Any]:
    """PutObject for what is known of an attempt: `view` as clients see it, and what the backend was sent."""
    document = {
        "job_id": job.job_id,
        **view,
        "config": encode(job.spec),
        "sent": sent(cluster, job, plan),
        "backend": job.spec.backend.value,
        "backend_ids": list(plan.task_ids) or [attempt_id(job.job_id, plan.attempt)],
    }
    body = json.dumps(document, indent=1, ensure_ascii=False).encode()
    key = f"{records_of(job.job_id)}a{plan.attempt:02d}/attempt.json"
    return {"Bucket": bucket, "Key": key, "Body": body, "ContentType": JSON}


def sent(cluster: str, job: Job, plan: Plan) -> dict[str, Any] | None:
    """What the backend was sent for the attempt; None if that is not known, as of a person's own tasks.

    Of a gang on ECS the request of rank 0: the others differ in what names the rank and its instance. The address of
    rank 0's instance is asked of EC2 at each launch and not kept: in its place stands the instance's id.
    """
    if job.spec.backend is Backend.RAY:
        order: dict[str, Any] = encode(submission_of(replace(job, attempt=plan.attempt)))
        return order
    if job.started_by_person or not plan.instances or not plan.instances[0]:
        return None
    return ecs_requests.rank_request(cluster, job, plan, 0, f"(private address of {plan.instances[0]})")


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
