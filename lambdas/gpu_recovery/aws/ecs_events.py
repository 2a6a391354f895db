"""ECS's words about tasks and container instances, from events and from Describe calls, in the core's terms.

Parsing is lenient where AWS is: published events lack `time`, `version`, `exitCode`, `startedBy` or containers, name
tasks by short ARNs, and carry fields nobody has described yet. What is missing becomes empty. Only what a fact would
be wrong without must be there: the task's or instance's own name, and whether an instance is at work.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from gpu_recovery.aws.fields import EventUnreadable, Fields, fields_of, time_of
from gpu_recovery.core.events import InstanceObserved
from gpu_recovery.core.task import ContainerFact, TaskFact

__all__ = ["EventUnreadable", "detail_of", "instance_fact", "task_fact", "time_of"]

GROUP_ATTRIBUTE, RACK_ATTRIBUTE = "gpu-recovery.group", "gpu-recovery.rack"
"""ECS attributes of a container instance: the group whose jobs it takes, and what it shares with its neighbours."""
RANK_VARIABLES = ("JOB_ID", "CHECK_ID")
STARTED_BY_CHARACTERS_MAX = 128
NAME_CHARACTERS_MAX = 255
INSTANCE_ID = re.compile(r"m?i-[0-9A-Za-z-]{1,64}")
"""EC2's ids, and those that ECS Anywhere gives to machines elsewhere."""
TIMES = ("stoppedAt", "executionStoppedAt", "startedAt", "updatedAt", "createdAt")
"""The times of a task, the one that is nearest to its news first."""


class Overrides(NamedTuple):
    """What a task was given on top of its definition; `main_container` is the one that was given our marks."""

    environment: Mapping[str, str]
    command: tuple[str, ...]
    main_container: str


def overrides_of(told: Fields) -> Overrides:
    """The overrides of a task, all containers taken together. They are the same as long as there is the task."""
    each = told.fields("overrides").each("containerOverrides")
    environments = [one.pairs("environment") for one in each]
    marked = [n for n, environment in enumerate(environments) if any(mark in environment for mark in RANK_VARIABLES)]
    ours = each[marked[0]] if marked else Fields({})
    together = {name: value for environment in environments for name, value in environment.items()}
    return Overrides(together, ours.texts("command"), ours.text("name", NAME_CHARACTERS_MAX))


def task_fact(
    task: Mapping[str, Any], now: datetime, read_overrides: Callable[[Fields], Overrides] = overrides_of
) -> TaskFact:
    """The task of an event's `detail` or of DescribeTasks; `now` stands in for a time that is not given.

    read_overrides: `overrides_of`, or what remembers its answers.
    Raises EventUnreadable, which names the field that is missing or not what it must be.
    """
    told = fields_of(task).required("taskArn")
    overrides = read_overrides(told)
    containers = told.each("containers")
    last_time = next((time for time in map(told.time, TIMES) if time is not None), now)
    return TaskFact(
        task_id=told.last_id("taskArn"),
        last_status=told.text("lastStatus", NAME_CHARACTERS_MAX),
        at=last_time,
        task_definition=told.last_id("taskDefinitionArn"),
        container_instance_id=told.last_id("containerInstanceArn"),
        started_by=told.text("startedBy", STARTED_BY_CHARACTERS_MAX),
        group=told.text("group"),
        version=told.whole("version") or 0,
        containers=tuple(_container(one) for one in containers),
        environment=overrides.environment,
        command=overrides.command,
        main_container=overrides.main_container,
        gpus=sum(len(one.texts("gpuIds")) for one in containers),
        stop_code=told.text("stopCode", NAME_CHARACTERS_MAX),
        stopped_reason=told.prose("stoppedReason"),
        created_at=told.time("createdAt"),
        ended_at=told.time("executionStoppedAt"),
    )


def _container(told: Fields) -> ContainerFact:
    # A signal may be told as a negative number.
    return ContainerFact(
        told.text("name", NAME_CHARACTERS_MAX), told.whole("exitCode", least=-(2**31)), told.prose("reason")
    )


def instance_fact(detail: Mapping[str, Any], now: datetime) -> tuple[str, InstanceObserved]:
    """(EC2 instance id, what ECS says) of an event's `detail` or of DescribeContainerInstances.

    Raises EventUnreadable, which names the field that is missing or not what it must be. An absent status is one of
    them: read as none of those that ECS gives to an instance at work, it would end every rank on the machine.
    """
    told = fields_of(detail)
    for name in ("containerInstanceArn", "ec2InstanceId", "status", "agentConnected"):
        told.required(name)
    instance_id = told.text("ec2InstanceId").strip()
    if not INSTANCE_ID.fullmatch(instance_id):
        raise EventUnreadable("ec2InstanceId", f"must be the id of an instance, not {instance_id[:80]!r}")
    attributes = told.pairs("attributes")
    return instance_id, InstanceObserved(
        at=told.time("updatedAt") or now,
        ecs_version=told.whole("version") or 0,
        ecs_status=told.text("status", NAME_CHARACTERS_MAX),
        agent_connected=told.flag("agentConnected"),
        container_instance_id=told.last_id("containerInstanceArn"),
        gpus=_gpus(told, "registeredResources"),
        gpus_free=_gpus(told, "remainingResources") if detail.get("remainingResources") else None,
        availability_zone=attributes.get("ecs.availability-zone", ""),
        group=attributes.get(GROUP_ATTRIBUTE, ""),
        rack=attributes.get(RACK_ATTRIBUTE, ""),
    )


def _gpus(told: Fields, name: str) -> int:
    resource = told.first(name, "name", "GPU")
    return 0 if resource is None else len(resource.texts("stringSetValue")) or resource.whole("integerValue") or 0


def detail_of(event: Mapping[str, Any]) -> Mapping[str, Any]:
    """The `detail` of an EventBridge event. EventUnreadable if it has none, or an `id` that no log could hold."""
    told = fields_of(event).required("detail")
    told.text("id", NAME_CHARACTERS_MAX)
    return told.fields("detail").values
