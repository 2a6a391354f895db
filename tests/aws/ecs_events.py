"""Task and container-instance events of our own tasks, in the shape in which ECS sends them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from gpu_recovery.core.identifiers import attempt_id

from tests.aws.environment import ACCOUNT, CLUSTER, REGION
from tests.aws.records import NOW

ARN = f"arn:aws:ecs:{REGION}:{ACCOUNT}"


def task_arn(task_id: str) -> str:
    """The long ARN of a task."""
    return f"{ARN}:task/{CLUSTER}/{task_id}"


def ours(event: dict[str, Any]) -> dict[str, Any]:
    """The event as a rule of the deployment delivers it: of its account and region, of ECS if it has no source."""
    return {"source": "aws.ecs", **event, "account": ACCOUNT, "region": REGION}


def _event(detail_type: str, detail: dict[str, Any]) -> dict[str, Any]:
    return {
        "version": "0",
        "id": "8952ba83-7be2-4ab5-9c32-6687532d15a2",
        "detail-type": detail_type,
        "source": "aws.ecs",
        "account": ACCOUNT,
        "time": "2026-11-21T09:00:00Z",
        "region": REGION,
        "resources": [],
        "detail": detail,
    }


def task_event(
    task_id: str,
    started_by: str,
    status: str,
    environment: dict[str, str],
    *,
    exit_code: int | None = None,
    stop_code: str = "EssentialContainerExited",
    reason: str = "Essential container in task exited",
    at: datetime = NOW,
    container: str = "main",
) -> dict[str, Any]:
    """A task with one container, whose override carries `environment`."""
    pairs = [{"name": name, "value": value} for name, value in environment.items()]
    detail: dict[str, Any] = {
        "taskArn": task_arn(task_id),
        "clusterArn": f"{ARN}:cluster/{CLUSTER}",
        "lastStatus": status,
        "containerInstanceArn": f"{ARN}:container-instance/{CLUSTER}/ci-i-of-{task_id}",
        "taskDefinitionArn": f"{ARN}:task-definition/gpu-training:3",
        "startedBy": started_by,
        "version": 4,
        "containers": [{"name": container, "lastStatus": status}],
        "createdAt": at.isoformat(),
        "overrides": {"containerOverrides": [{"name": container, "environment": pairs}]},
        "updatedAt": at.isoformat(),
    }
    if status == "STOPPED":
        detail |= {"stopCode": stop_code, "stoppedReason": reason, "stoppedAt": at.isoformat()}
        if exit_code is not None:
            detail["containers"][0]["exitCode"] = exit_code
    return _event("ECS Task State Change", detail)


def rank_event(job_id: str, attempt: int, rank: int, status: str, **ended: Any) -> dict[str, Any]:
    """A rank that we started."""
    environment = {"JOB_ID": job_id, "ATTEMPT": str(attempt), "RANK": str(rank), "INSTANCE_ID": f"i-0{rank:016x}"}
    started_by = attempt_id(job_id, attempt)
    return task_event(f"{job_id}-{attempt}-{rank}", started_by, status, environment, **ended)


def check_event(instance_id: str, number: int, exit_code: int | None) -> dict[str, Any]:
    """A health check that has ended."""
    check_id = f"check/{instance_id}/{number}"
    environment = {"CHECK_ID": check_id, "INSTANCE_ID": instance_id, "VERDICT_KEY": f"verdicts/{check_id}.json"}
    task_id = check_id.replace("/", "-")
    return task_event(task_id, check_id, "STOPPED", environment, exit_code=exit_code, container="health-check")


def instance_event(instance_id: str, version: int, **changes: Any) -> dict[str, Any]:
    """A container instance with eight GPUs."""
    gpus = [f"GPU-{n}" for n in range(8)]
    detail = {
        "containerInstanceArn": f"{ARN}:container-instance/{CLUSTER}/ci-{instance_id}",
        "ec2InstanceId": instance_id,
        "agentConnected": True,
        "status": "ACTIVE",
        "version": version,
        "updatedAt": NOW.isoformat(),
        "attributes": [{"name": "ecs.availability-zone", "value": "us-east-1a"}],
        "registeredResources": [{"name": "GPU", "type": "STRINGSET", "stringSetValue": gpus}],
    } | changes
    return _event("ECS Container Instance State Change", detail)
