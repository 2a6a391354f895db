"""Tasks and container instances in the shapes of the ECS API, and the same facts as event details."""

from collections.abc import Callable, Collection
from datetime import UTC, datetime
from typing import Any

from sandbox.cluster.model.cluster import ClusterModel
from sandbox.cluster.model.records import Container, ModelInstance, Task
from sandbox.cluster.model.statuses import TaskStatus

AGENT = {"agentHash": "b6c04a3e", "agentVersion": "1.98.0", "dockerVersion": "DockerVersion: 25.0.8"}
PORTS_IN_USE = ("22", "2375", "2376", "51678", "51679")  # ports that every ECS instance reserves


_ISO_TEXTS: dict[datetime, str] = {}
_ISO_TEXTS_MAX = 10_000


def iso(value: datetime) -> str:
    """Return a timestamp as ECS events print it: milliseconds, Z."""
    # Cached, because the same time is in every event of its moment and in every later event of the same task.
    text = _ISO_TEXTS.get(value)
    if text is None:
        if len(_ISO_TEXTS) >= _ISO_TEXTS_MAX:
            _ISO_TEXTS.clear()
        text = _ISO_TEXTS[value] = _iso(value)
    return text


def _iso(value: datetime) -> str:
    text = value.astimezone(UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def _container(task: Task, container: Container) -> dict[str, Any]:
    view: dict[str, Any] = {
        "containerArn": container.arn,
        "taskArn": task.arn,
        "name": container.name,
        "image": container.image,
        "lastStatus": str(container.last_status),
        "networkInterfaces": [],
        "cpu": str(container.cpu),
    }
    if task.process_started_at is not None:
        view["runtimeId"], view["networkBindings"] = container.runtime_id, []
    if container.exit_code is not None:
        view["exitCode"] = container.exit_code
    if container.reason is not None:
        view["reason"] = container.reason
    if container.memory is not None:
        view["memory"] = str(container.memory)
    if container.memory_reservation is not None:
        view["memoryReservation"] = str(container.memory_reservation)
    if container.gpu_ids:
        view["gpuIds"] = list(container.gpu_ids)
    return view


def _task(cluster: ClusterModel, task: Task, shown: Callable[[datetime], Any]) -> dict[str, Any]:
    """Return every known member of a task; `shown` converts its times."""
    instance = cluster.instance_of(task)
    view: dict[str, Any] = {
        "attachments": [],
        "attributes": [{"name": "ecs.cpu-architecture", "value": "x86_64"}],
        "availabilityZone": instance.availability_zone,
        "clusterArn": cluster.cluster_arn,
        "containerInstanceArn": task.container_instance_arn,
        "containers": [_container(task, container) for container in task.containers],
        "cpu": str(task.cpu),
        "desiredStatus": str(task.desired_status),
        "enableExecuteCommand": False,
        "group": task.group,
        "lastStatus": str(task.last_status),
        "launchType": "EC2",
        "memory": str(task.memory),
        "overrides": task.overrides,
        "taskArn": task.arn,
        "taskDefinitionArn": task.definition["taskDefinitionArn"],
        "version": task.version,
    }
    if task.started_at is not None:
        view["connectivity"] = "CONNECTED"
    if task.started_by is not None:
        view["startedBy"] = task.started_by
    if task.stop_code is not None:
        view["stopCode"] = str(task.stop_code)
    if task.stopped_reason is not None:
        view["stoppedReason"] = task.stopped_reason
    view["createdAt"] = shown(task.created_at)
    if task.process_started_at is not None:
        view["pullStartedAt"] = view["pullStoppedAt"] = shown(task.process_started_at)
    if task.started_at is not None:
        view["connectivityAt"] = view["startedAt"] = shown(task.started_at)
    if task.stopping_at is not None:
        view["stoppingAt"] = shown(task.stopping_at)
    if task.execution_stopped_at is not None:
        view["executionStoppedAt"] = shown(task.execution_stopped_at)
    if task.stopped_at is not None:
        view["stoppedAt"] = shown(task.stopped_at)
    return view


def _unchanged(at: datetime) -> datetime:
    return at


def task_view(cluster: ClusterModel, task: Task) -> dict[str, Any]:
    """Return a `Task` of the ECS API, without tags: DescribeTasks adds them on request, events never have them."""
    return _task(cluster, task, _unchanged)


def task_answered(cluster: ClusterModel, task: Task) -> dict[str, Any]:
    """Return the task in the response of RunTask or StopTask.

    With `ClusterModel.mute` set, the response holds only the ARN, because its readers need no more.
    """
    return task_view(cluster, task) if cluster.mute is None else {"taskArn": task.arn}


def task_detail(cluster: ClusterModel, task: Task) -> dict[str, Any]:
    """Return `detail` of an ECS Task State Change. `overrides` is the task's own object, which never changes."""
    detail = _task(cluster, task, iso)
    detail["updatedAt"] = iso(task.updated_at)
    return detail


def _resources(cpu: int, memory: int, gpus: list[str]) -> list[dict[str, Any]]:
    return [
        {"name": "CPU", "type": "INTEGER", "integerValue": cpu},
        {"name": "MEMORY", "type": "INTEGER", "integerValue": memory},
        _PORTS,
        _PORTS_UDP,
        {"name": "GPU", "type": "STRINGSET", "stringSetValue": gpus},
    ]


_PORTS: dict[str, Any] = {"name": "PORTS", "type": "STRINGSET", "stringSetValue": list(PORTS_IN_USE)}
_PORTS_UDP: dict[str, Any] = {"name": "PORTS_UDP", "type": "STRINGSET", "stringSetValue": []}
_ATTRIBUTES: dict[tuple[str, str], list[dict[str, str]]] = {}


def _attributes(instance: ModelInstance) -> list[dict[str, str]]:
    """Return the instance's attributes. Instances of the same type and zone share one list."""
    key = instance.availability_zone, instance.instance_type
    if key not in _ATTRIBUTES:
        _ATTRIBUTES[key] = _build_attributes(instance)
    return _ATTRIBUTES[key]


def _build_attributes(instance: ModelInstance) -> list[dict[str, str]]:
    bare = (
        "privileged-container",
        "docker-remote-api.1.44",
        "logging-driver.awslogs",
        "task-iam-role-network-host",
    )
    named = {
        "ecs.availability-zone": instance.availability_zone,
        "ecs.instance-type": instance.instance_type,
        "ecs.os-type": "linux",
        "ecs.cpu-architecture": "x86_64",
    }
    return [{"name": f"com.amazonaws.ecs.capability.{name}"} for name in bare] + [
        {"name": name, "value": value} for name, value in named.items()
    ]


def container_instance_detail(cluster: ClusterModel, instance: ModelInstance) -> dict[str, Any]:
    """Return `detail` of an ECS Container Instance State Change."""
    return {
        "agentConnected": instance.agent_connected,
        "attributes": _attributes(instance),
        "clusterArn": cluster.cluster_arn,
        "containerInstanceArn": instance.arn,
        "ec2InstanceId": instance.instance_id,
        "registeredResources": _resources(instance.cpu, instance.memory, list(instance.gpus)),
        "remainingResources": _resources(*cluster.remaining(instance)),
        "status": str(instance.status),
        "version": instance.version,
        "versionInfo": dict(AGENT),
        "updatedAt": iso(instance.updated_at),
    }


def container_instance_view(
    cluster: ClusterModel, instance: ModelInstance, include: Collection[str] = ()
) -> dict[str, Any]:
    """Return a `ContainerInstance` of the ECS API. `include`: TAGS, CONTAINER_INSTANCE_HEALTH."""
    detail = container_instance_detail(cluster, instance)
    running = sum(t.last_status is TaskStatus.RUNNING for t in cluster.live_tasks(instance))
    pending = sum(t.last_status in {TaskStatus.PROVISIONING, TaskStatus.PENDING} for t in cluster.live_tasks(instance))
    zeros = {"doubleValue": 0.0, "longValue": 0, "integerValue": 0}  # the API has these members, events do not
    view = {key: value for key, value in detail.items() if key not in {"updatedAt", "clusterArn"}} | {
        "registeredResources": [zeros | resource for resource in detail["registeredResources"]],
        "remainingResources": [zeros | resource for resource in detail["remainingResources"]],
        "runningTasksCount": running,
        "pendingTasksCount": pending,
        "registeredAt": instance.registered_at,
        "attachments": [],
    }
    if "TAGS" in include:
        view["tags"] = [{"key": key, "value": value} for key, value in instance.tags.items()]
    if "CONTAINER_INSTANCE_HEALTH" in include and instance.ecs_health:
        view["healthStatus"] = _health_status(instance)
    return view


def _health_status(instance: ModelInstance) -> dict[str, Any]:
    details = [
        {
            "type": kind,
            "status": check.status,
            "lastStatusChange": check.since,
            "lastUpdated": check.since,
            **({"statusReason": check.reason} if check.reason is not None else {}),
        }
        for kind, check in instance.ecs_health.items()
    ]
    impaired = any(detail["status"] == "IMPAIRED" for detail in details)
    return {"overallStatus": "IMPAIRED" if impaired else "OK", "details": details}


def attributes_of(instance: ModelInstance) -> dict[str, str]:
    """Return the attributes of an instance that a placement expression may name, by name."""
    return {entry["name"]: entry.get("value", "") for entry in _attributes(instance)}
