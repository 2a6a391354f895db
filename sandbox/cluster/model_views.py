"""Tasks and container instances in the words of the ECS API, and the same facts as event details."""

from datetime import UTC, datetime
from typing import Any

from sandbox.cluster.model import Cluster, Container, Instance, Task, TaskStatus

AGENT = {"agentHash": "b6c04a3e", "agentVersion": "1.98.0", "dockerVersion": "DockerVersion: 25.0.8"}
PORTS_IN_USE = ("22", "2375", "2376", "51678", "51679")  # the ones every ECS instance reserves


def iso(value: datetime) -> str:
    """A timestamp as ECS events print it: milliseconds, Z."""
    text = value.astimezone(UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return iso(value)
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list) else value


def _present(members: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in members.items() if value is not None}


def _container(task: Task, container: Container) -> dict[str, Any]:
    return _present(
        {
            "containerArn": container.arn,
            "taskArn": task.arn,
            "name": container.name,
            "image": container.image,
            "runtimeId": container.runtime_id if task.process_started_at else None,
            "lastStatus": str(container.last_status),
            "exitCode": container.exit_code,
            "reason": container.reason,
            "networkBindings": [] if task.process_started_at else None,
            "networkInterfaces": [],
            "cpu": str(container.cpu),
            "memory": None if container.memory is None else str(container.memory),
            "memoryReservation": None if container.memory_reservation is None else str(container.memory_reservation),
            "gpuIds": list(container.gpu_ids) or None,
        }
    )


def task_view(cluster: Cluster, task: Task) -> dict[str, Any]:
    """A `Task` of the ECS API, without tags (DescribeTasks adds them on request, events never have them)."""
    instance = cluster.instance_of(task)
    return _present(
        {
            "attachments": [],
            "attributes": [{"name": "ecs.cpu-architecture", "value": "x86_64"}],
            "availabilityZone": instance.availability_zone,
            "clusterArn": cluster.cluster_arn,
            "connectivity": "CONNECTED" if task.started_at else None,
            "connectivityAt": task.started_at,
            "containerInstanceArn": instance.arn,
            "containers": [_container(task, container) for container in task.containers],
            "cpu": str(task.cpu),
            "createdAt": task.created_at,
            "desiredStatus": str(task.desired_status),
            "enableExecuteCommand": False,
            "executionStoppedAt": task.execution_stopped_at,
            "group": task.group,
            "lastStatus": str(task.last_status),
            "launchType": "EC2",
            "memory": str(task.memory),
            "overrides": task.overrides,
            "pullStartedAt": task.process_started_at,
            "pullStoppedAt": task.process_started_at,
            "startedAt": task.started_at,
            "startedBy": task.started_by,
            "stopCode": None if task.stop_code is None else str(task.stop_code),
            "stoppedAt": task.stopped_at,
            "stoppedReason": task.stopped_reason,
            "stoppingAt": task.stopping_at,
            "taskArn": task.arn,
            "taskDefinitionArn": task.definition["taskDefinitionArn"],
            "version": task.version,
        }
    )


def task_detail(cluster: Cluster, task: Task) -> dict[str, Any]:
    """`detail` of an ECS Task State Change."""
    detail: dict[str, Any] = _plain(task_view(cluster, task) | {"updatedAt": task.updated_at})
    return detail


def _resources(cpu: int, memory: int, gpus: list[str]) -> list[dict[str, Any]]:
    return [
        {"name": "CPU", "type": "INTEGER", "integerValue": cpu},
        {"name": "MEMORY", "type": "INTEGER", "integerValue": memory},
        {"name": "PORTS", "type": "STRINGSET", "stringSetValue": list(PORTS_IN_USE)},
        {"name": "PORTS_UDP", "type": "STRINGSET", "stringSetValue": []},
        {"name": "GPU", "type": "STRINGSET", "stringSetValue": gpus},
    ]


def _attributes(instance: Instance) -> list[dict[str, str]]:
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


def container_instance_detail(cluster: Cluster, instance: Instance) -> dict[str, Any]:
    """`detail` of an ECS Container Instance State Change."""
    live = list(cluster.live_tasks(instance))
    return {
        "agentConnected": instance.agent_connected,
        "attributes": _attributes(instance),
        "clusterArn": cluster.cluster_arn,
        "containerInstanceArn": instance.arn,
        "ec2InstanceId": instance.instance_id,
        "registeredResources": _resources(instance.cpu, instance.memory, list(instance.gpus)),
        "remainingResources": _resources(
            instance.cpu - sum(task.cpu for task in live),
            instance.memory - sum(task.memory for task in live),
            cluster.free_gpus(instance),
        ),
        "status": str(instance.status),
        "version": instance.version,
        "versionInfo": dict(AGENT),
        "updatedAt": iso(instance.updated_at),
    }


def container_instance_view(cluster: Cluster, instance: Instance, *, with_tags: bool = False) -> dict[str, Any]:
    """A `ContainerInstance` of the ECS API."""
    detail = container_instance_detail(cluster, instance)
    running = sum(t.last_status is TaskStatus.RUNNING for t in cluster.live_tasks(instance))
    pending = sum(t.last_status in {TaskStatus.PROVISIONING, TaskStatus.PENDING} for t in cluster.live_tasks(instance))
    zeros = {"doubleValue": 0.0, "longValue": 0, "integerValue": 0}  # the API prints them, events do not
    view = {key: value for key, value in detail.items() if key not in {"updatedAt", "clusterArn"}} | {
        "registeredResources": [zeros | resource for resource in detail["registeredResources"]],
        "remainingResources": [zeros | resource for resource in detail["remainingResources"]],
        "runningTasksCount": running,
        "pendingTasksCount": pending,
        "registeredAt": instance.registered_at,
        "attachments": [],
    }
    if with_tags:
        view["tags"] = [{"key": key, "value": value} for key, value in instance.tags.items()]
    return view


def attributes_of(instance: Instance) -> dict[str, str]:
    """What a placement expression can ask about an instance."""
    return {entry["name"]: entry.get("value", "") for entry in _attributes(instance)}
