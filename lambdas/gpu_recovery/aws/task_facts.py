"""ECS's words about tasks and container instances, from events and from Describe calls, in the core's terms.

Parsing is lenient where AWS is: published events lack `time`, `version`, `exitCode`, `startedBy` or containers, name
tasks by short ARNs, and carry fields nobody has described yet. What is missing becomes empty, never an exception; only
an event without the task's or instance's own name cannot be used at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from ..core.errors import RecoveryError
from ..core.events import InstanceObserved
from ..core.task import Container, TaskFact

MARKS = ("JOB_ID", "CHECK_ID")


class EventUnusable(RecoveryError):
    """An event that does not even say what it is about."""


def last_part(arn: str) -> str:
    """The id at the end of a long or short ARN."""
    return arn.rsplit("/", 1)[-1]


def time_of(value: Any) -> datetime | None:
    """The aware UTC time of an ISO text or a datetime; None for anything else, such as a placeholder."""
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    if not isinstance(value, str):
        return None
    try:
        parsed = datetime.fromisoformat(value.replace("Z", "+00:00"))
    except ValueError:
        return None
    return parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed.astimezone(UTC)


def task_fact(task: Mapping[str, Any], now: datetime) -> TaskFact:
    """The task of an event's `detail` or of DescribeTasks; `now` stands in for a time that is not given."""
    arn = task.get("taskArn") or ""
    if not arn:
        raise EventUnusable("a task without taskArn")
    overrides = ((task.get("overrides") or {}).get("containerOverrides")) or []
    pairs = [pair for one in overrides for pair in one.get("environment") or []]
    environment = {pair.get("name") or "": pair.get("value") or "" for pair in pairs}
    marked = [one for one in overrides if any(pair.get("name") in MARKS for pair in one.get("environment") or [])]
    containers = tuple(
        Container(one.get("name", ""), one.get("exitCode"), one.get("reason") or "")
        for one in task.get("containers") or []
    )
    times = ("stoppedAt", "executionStoppedAt", "startedAt", "updatedAt", "createdAt")
    known = [time for time in (time_of(task.get(name)) for name in times) if time is not None]
    return TaskFact(
        task_id=last_part(arn),
        last_status=task.get("lastStatus") or "",
        at=known[0] if known else now,
        task_definition=last_part(task.get("taskDefinitionArn") or ""),
        container_instance_id=last_part(task.get("containerInstanceArn") or ""),
        started_by=task.get("startedBy") or "",
        group=task.get("group") or "",
        version=int(task.get("version") or 0),
        containers=containers,
        environment=environment,
        command=tuple((marked[0].get("command") or ()) if marked else ()),
        main_container=marked[0].get("name", "") if marked else "",
        gpus=sum(len(one.get("gpuIds") or ()) for one in task.get("containers") or []),
        stop_code=task.get("stopCode") or "",
        stopped_reason=task.get("stoppedReason") or "",
        created_at=time_of(task.get("createdAt")),
    )


def instance_fact(detail: Mapping[str, Any], now: datetime) -> tuple[str, InstanceObserved]:
    """(EC2 instance id, what ECS says) of an event's `detail` or of DescribeContainerInstances."""
    arn, instance_id = detail.get("containerInstanceArn") or "", (detail.get("ec2InstanceId") or "").strip()
    if not arn or not instance_id:
        raise EventUnusable("a container instance without containerInstanceArn or ec2InstanceId")
    attributes = {one.get("name"): one.get("value", "") for one in detail.get("attributes") or []}
    return instance_id, InstanceObserved(
        at=time_of(detail.get("updatedAt")) or now,
        ecs_version=int(detail.get("version") or 0),
        ecs_status=detail.get("status") or "",
        agent_connected=bool(detail.get("agentConnected")),
        container_instance_id=last_part(arn),
        gpus=_gpus(detail.get("registeredResources") or []),
        gpus_free=_gpus(detail["remainingResources"]) if detail.get("remainingResources") else None,
        availability_zone=attributes.get("ecs.availability-zone", ""),
    )


def _gpus(resources: list[Mapping[str, Any]]) -> int:
    for resource in resources:
        if resource.get("name") == "GPU":
            return len(resource.get("stringSetValue") or ()) or int(resource.get("integerValue") or 0)
    return 0


def detail_of(event: Mapping[str, Any]) -> Mapping[str, Any]:
    """The `detail` of an EventBridge event. EventUnusable if it has none."""
    detail = event.get("detail")
    if not isinstance(detail, Mapping):
        raise EventUnusable("an event without detail")
    return detail
