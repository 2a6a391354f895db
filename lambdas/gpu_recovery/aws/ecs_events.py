"""Parser of ECS tasks and container instances, from events and Describe calls, into facts of the core.

Parsing is lenient. Published events lack `time`, `version`, `exitCode`, `startedBy` or containers, use short ARNs, and
contain undocumented fields. A missing field becomes empty. Required are only the fields without which a fact would be
wrong: the id of the task or instance, and the status and agent connection of an instance.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from gpu_recovery.aws.ecs_health import health_reports
from gpu_recovery.aws.fields import EventUnreadable, Fields, fields_of, time_of
from gpu_recovery.core.events import InstanceObserved
from gpu_recovery.core.task import ContainerFact, TaskFact

__all__ = ["EventUnreadable", "detail_of", "instance_fact", "task_fact", "time_of"]

GROUP_ATTRIBUTE, RACK_ATTRIBUTE = "gpu-recovery.group", "gpu-recovery.rack"
"""ECS attributes of a container instance: the group of jobs that it accepts, and its rack."""
RANK_VARIABLES = ("JOB_ID", "CHECK_ID")
"""Environment variables of which one marks the main container of a task: the container of a rank or a health check."""
STARTED_BY_CHARACTERS_MAX = 128
NAME_CHARACTERS_MAX = 255
INSTANCE_ID = re.compile(r"m?i-[0-9A-Za-z-]{1,64}")
"""Instance ids of EC2 (`i-...`), and of ECS Anywhere for hosts outside EC2 (`mi-...`)."""
TIMES = ("stoppedAt", "executionStoppedAt", "startedAt", "updatedAt", "createdAt")
"""Time fields of a task, the latest change first. The first field that is present gives the time of the fact."""


class Overrides(NamedTuple):
    """Overrides of a task beyond its task definition.

    environment:    variables of all containers together.
    command:        command of the main container.
    main_container: name of the container that has one of RANK_VARIABLES; "" if there is none.
    """

    environment: Mapping[str, str]
    command: tuple[str, ...]
    main_container: str


def overrides_of(task: Fields) -> Overrides:
    """Return the overrides of a task, all containers together. They never change during the life of the task."""
    containers = task.fields("overrides").each("containerOverrides")
    environments = [container.pairs("environment") for container in containers]
    marked = [n for n, environment in enumerate(environments) if any(mark in environment for mark in RANK_VARIABLES)]
    main = containers[marked[0]] if marked else Fields({})
    together = {name: value for environment in environments for name, value in environment.items()}
    return Overrides(together, main.texts("command"), main.text("name", NAME_CHARACTERS_MAX))


def task_fact(
    task: Mapping[str, Any], now: datetime, read_overrides: Callable[[Fields], Overrides] = overrides_of
) -> TaskFact:
    """Parse the task of an event's `detail` or of DescribeTasks.

    Args:
        task: the task as ECS describes it.
        now: the time of the fact if ECS gives none.
        read_overrides: `overrides_of`, or a function that caches its results.

    Raises:
        EventUnreadable: a field is missing or malformed. The error names the field.
    """
    fields = fields_of(task).required("taskArn")
    overrides = read_overrides(fields)
    containers = fields.each("containers")
    last_time = next((time for time in map(fields.time, TIMES) if time is not None), now)
    return TaskFact(
        task_id=fields.last_id("taskArn"),
        last_status=fields.text("lastStatus", NAME_CHARACTERS_MAX),
        at=last_time,
        task_definition=fields.last_id("taskDefinitionArn"),
        container_instance_id=fields.last_id("containerInstanceArn"),
        started_by=fields.text("startedBy", STARTED_BY_CHARACTERS_MAX),
        group=fields.text("group"),
        version=fields.whole("version") or 0,
        containers=tuple(_container(container) for container in containers),
        environment=overrides.environment,
        command=overrides.command,
        main_container=overrides.main_container,
        gpus=sum(len(container.texts("gpuIds")) for container in containers),
        stop_code=fields.text("stopCode", NAME_CHARACTERS_MAX),
        stopped_reason=fields.prose("stoppedReason"),
        created_at=fields.time("createdAt"),
        ended_at=fields.time("executionStoppedAt"),
        desired_status=fields.text("desiredStatus", NAME_CHARACTERS_MAX),
    )


def _container(container: Fields) -> ContainerFact:
    # An exit by a signal may be reported as a negative exit code.
    return ContainerFact(
        container.text("name", NAME_CHARACTERS_MAX),
        container.whole("exitCode", least=-(2**31)),
        container.prose("reason"),
    )


def instance_fact(detail: Mapping[str, Any], now: datetime) -> tuple[str, InstanceObserved]:
    """Parse the container instance of an event's `detail` or of DescribeContainerInstances.

    Args:
        detail: the container instance as ECS describes it.
        now: the time of the observation if ECS gives none.

    Returns:
        The EC2 instance id and the observation.

    Raises:
        EventUnreadable: a field is missing or malformed. The error names the field. A missing status is such an error:
            an empty status would end every rank on the instance.
    """
    fields = fields_of(detail)
    for name in ("containerInstanceArn", "ec2InstanceId", "status", "agentConnected"):
        fields.required(name)
    instance_id = fields.text("ec2InstanceId").strip()
    if not INSTANCE_ID.fullmatch(instance_id):
        raise EventUnreadable("ec2InstanceId", f"must be the id of an instance, not {instance_id[:80]!r}")
    attributes = fields.pairs("attributes")
    free = _gpus(fields, "remainingResources") if detail.get("remainingResources") else None
    shared: int | None = None
    if detail.get("gpuDevices"):
        from gpu_recovery.aws.gpu_devices import gpu_sharing  # noqa: PLC0415 - few instances support GPU sharing

        if (sharing := gpu_sharing(fields)) is not None:
            free = sharing.idle if free is None else min(free, sharing.idle)
            shared = sharing.shared
    return instance_id, InstanceObserved(
        at=fields.time("updatedAt") or now,
        ecs_version=fields.whole("version") or 0,
        ecs_status=fields.text("status", NAME_CHARACTERS_MAX),
        agent_connected=fields.flag("agentConnected"),
        container_instance_id=fields.last_id("containerInstanceArn"),
        gpus=_gpus(fields, "registeredResources"),
        gpus_free=free,
        gpus_shared=shared,
        availability_zone=attributes.get("ecs.availability-zone", ""),
        group=attributes.get(GROUP_ATTRIBUTE, ""),
        rack=attributes.get(RACK_ATTRIBUTE, ""),
        health=(
            health_reports(fields.fields("healthStatus").each("details"), now, gpus_shared=shared or 0)
            if "healthStatus" in detail
            else ()
        ),
    )


def _gpus(instance: Fields, name: str) -> int:
    resource = instance.first(name, "name", "GPU")
    return 0 if resource is None else len(resource.texts("stringSetValue")) or resource.whole("integerValue") or 0


def detail_of(event: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the `detail` of an EventBridge event.

    Raises:
        EventUnreadable: the event has no `detail`, or its `id` is too long for the log or no text.
    """
    fields = fields_of(event).required("detail")
    fields.text("id", NAME_CHARACTERS_MAX)
    return fields.fields("detail").values
