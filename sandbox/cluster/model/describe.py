"""Describe and List calls of ECS on the model: tasks, container instances and the cluster."""

from collections.abc import Iterable
from datetime import datetime
from itertools import chain
from typing import Any

from sandbox.cluster.model.cluster import AwsApiError, ClusterModel
from sandbox.cluster.model.placement import predicate
from sandbox.cluster.model.records import ModelInstance, Task
from sandbox.cluster.model.statuses import ContainerInstanceStatus, TaskStatus
from sandbox.cluster.model.views import container_instance_view, task_view

PAGE_MAX = 100
"""Upper bound of the items of a page, and of the ids of a Describe call."""


def describe_tasks(cluster: ClusterModel, request: dict[str, Any], now: datetime) -> dict[str, Any]:
    """DescribeTasks. An unknown or forgotten id is a MISSING failure."""
    if len(request["tasks"]) > PAGE_MAX:
        raise AwsApiError("InvalidParameterException", "Tasks cannot have more than 100 elements")
    views, failures = [], []
    for reference in request["tasks"]:
        task = cluster.find_task(reference, now)
        if task is None:
            arn = reference if ":" in reference else cluster.arn("task", f"{cluster.name}/{reference}")
            failures.append({"arn": arn, "reason": "MISSING"})
            continue
        tags = {"tags": task.tags} if "TAGS" in request.get("include", []) else {}
        views.append(task_view(cluster, task) | tags)
    return {"tasks": views, "failures": failures}


def check_filters(request: dict[str, Any]) -> None:
    """Refuse filters of ListTasks that ECS does not combine.

    The API reference says that `startedBy` must be the only filter. `desiredStatus` is accepted beside it: deployed
    programs send both (the EcsRunTaskOperator of Apache Airflow).

    Raises:
        AwsApiError: `startedBy` stands beside another filter.
    """
    if "startedBy" in request and {"family", "containerInstance", "serviceName", "launchType"} & set(request):
        raise AwsApiError("InvalidParameterException", "startedBy must be the only filter that you use.")


def list_tasks(cluster: ClusterModel, request: dict[str, Any], now: datetime) -> dict[str, Any]:
    """ListTasks. `desiredStatus` is RUNNING by default; `startedBy` excludes every filter but `desiredStatus`."""
    return page(tasks_listed(cluster, request, now), _with_page_size(request), "taskArns", "maxResults", "nextToken")


def _with_page_size(request: dict[str, Any]) -> dict[str, Any]:
    """Return the request of a list operation of ECS.

    Raises:
        AwsApiError: Its page has not between 1 and 100 items (API reference, ListTasks and ListContainerInstances).
    """
    if not 1 <= request.get("maxResults", PAGE_MAX) <= PAGE_MAX:
        raise AwsApiError("InvalidParameterException", f"maxResults must be between 1 and {PAGE_MAX}.")
    return request


def tasks_listed(cluster: ClusterModel, request: dict[str, Any], now: datetime) -> list[str]:
    """Return the ARNs of all pages of ListTasks."""
    check_filters(request)
    host = None
    if "containerInstance" in request:
        host = cluster.find_container_instance(request["containerInstance"])
        if host is None:
            raise AwsApiError("InvalidParameterException", "The referenced container instance was not found.")
    desired = request.get("desiredStatus", "RUNNING")
    if request.get("launchType", "EC2") != "EC2" or "serviceName" in request:
        return []
    family = request.get("family")
    return [
        task.arn
        for task in _candidates(cluster, request, desired, host)
        if task.desired_status == desired
        and (task.stopped_at is None or cluster.find_task(task.task_id, now) is not None)
        and (family is None or task.definition["family"] == family)
        and (host is None or task.instance_id == host.instance_id)
    ]


def _candidates(
    cluster: ClusterModel, request: dict[str, Any], desired: str, host: ModelInstance | None
) -> Iterable[Task]:
    """Return the tasks that ListTasks must check. A task that shall run holds resources of its instance."""
    if request.get("startedBy") is not None:
        return cluster.tasks.started_by(request["startedBy"])
    if desired != TaskStatus.RUNNING:
        return cluster.tasks.values()
    if host is not None:
        return cluster.live_tasks(host)
    return cluster.tasks.of(chain.from_iterable(instance.live for instance in cluster.instances.values()))


def page(items: list[Any], request: dict[str, Any], member: str, size: str, token: str) -> dict[str, Any]:
    """Return one page of a list response.

    Args:
        items: The whole list.
        request: Parameters of the call.
        member: Name of the response's member for the items.
        size: Name of the request's member for the page size (default 100 items).
        token: Name of the member for the next token, which is a position in `items`.

    Raises:
        AwsApiError: The request's token is no position.
    """
    text = request.get(token) or "0"
    if not text.isdigit():
        raise AwsApiError("InvalidParameterException", "Invalid token.")
    start = int(text)
    end = start + (request.get(size) or 100)
    return {member: items[start:end]} | ({token: str(end)} if end < len(items) else {})


def describe_container_instances(cluster: ClusterModel, request: dict[str, Any]) -> dict[str, Any]:
    """DescribeContainerInstances. An unknown id is a MISSING failure."""
    if len(request["containerInstances"]) > PAGE_MAX:
        raise AwsApiError("InvalidParameterException", "instanceIds can have at most 100 items.")
    views, failures = [], []
    for reference in request["containerInstances"]:
        instance = cluster.find_container_instance(reference)
        if instance is None:
            arn = reference if ":" in reference else cluster.arn("container-instance", f"{cluster.name}/{reference}")
            failures.append({"arn": arn, "reason": "MISSING"})
        else:
            views.append(container_instance_view(cluster, instance, request.get("include", ())))
    return {"containerInstances": views, "failures": failures}


def list_container_instances(cluster: ClusterModel, request: dict[str, Any]) -> dict[str, Any]:
    """ListContainerInstances. Without `status`, ACTIVE and DRAINING instances."""
    arns = instances_listed(cluster, request)
    return page(arns, _with_page_size(request), "containerInstanceArns", "maxResults", "nextToken")


def instances_listed(cluster: ClusterModel, request: dict[str, Any]) -> list[str]:
    """Return the ARNs of all pages of ListContainerInstances."""
    holds = predicate(request["filter"]) if request.get("filter") else (lambda instance: True)
    wanted = (
        {request["status"]}
        if "status" in request
        else {ContainerInstanceStatus.ACTIVE, ContainerInstanceStatus.DRAINING}
    )
    return [i.arn for i in cluster.instances.values() if i.status in wanted and holds(i)]


def describe_clusters(cluster: ClusterModel, request: dict[str, Any]) -> dict[str, Any]:
    """DescribeClusters. Any name but that of this cluster is a MISSING failure."""
    names = request.get("clusters") or ["default"]
    known = {cluster.name, cluster.cluster_arn}
    live = [task for instance in cluster.instances.values() for task in cluster.live_tasks(instance)]
    running = sum(task.last_status is TaskStatus.RUNNING for task in live)
    view = {
        "clusterArn": cluster.cluster_arn,
        "clusterName": cluster.name,
        "status": "ACTIVE",
        "registeredContainerInstancesCount": sum(
            instance.status is not ContainerInstanceStatus.INACTIVE for instance in cluster.instances.values()
        ),
        "runningTasksCount": running,
        "pendingTasksCount": len(live) - running,
        "activeServicesCount": 0,
    }
    missing = [
        {"arn": name if ":" in name else cluster.arn("cluster", name), "reason": "MISSING"}
        for name in names
        if name not in known
    ]
    return {"clusters": [view] if known & set(names) else [], "failures": missing}
