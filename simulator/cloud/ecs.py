"""ECS client for the production wrapper, answered by the cluster model; and the wrapper without threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, cast

from botocore.exceptions import ClientError
from gpu_recovery.aws.ecs import Ecs
from gpu_recovery.aws.ecs_events import Overrides, overrides_of
from gpu_recovery.aws.fields import Fields
from gpu_recovery.core.events import InstanceObserved
from gpu_recovery.core.task import TaskFact

from sandbox.cluster.model import describe, instances, tasks
from sandbox.cluster.model.cluster import AwsApiError, OperationResult
from sandbox.cluster.task_definitions import MemoryDefinitions
from simulator.cloud.fleet import VirtualFleet
from simulator.cloud.sequential_calls import SequentialCalls
from simulator.invocations import Invocations

LISTED_INSTANCES = ("list_container_instances", "containerInstanceArns")
"""Operation that lists container instances, and the member of its response that holds the ARNs."""


class EcsModelClient:
    """The operations of a boto3 ECS client that the product calls.

    Every changing operation is an effect of the present invocation. All operations take the parameters of boto3 and
    return its response.

    Raises:
        ClientError: the model refuses the request.
    """

    def __init__(self, fleet: VirtualFleet, definitions: MemoryDefinitions, invocations: Invocations) -> None:
        self.fleet, self.definitions, self.invocations = fleet, definitions, invocations

    def run_task(self, **params: Any) -> dict[str, Any]:
        """Answer RunTask."""

        def run(now: datetime) -> OperationResult:
            definition = self.definitions.describe_task_definition(taskDefinition=params["taskDefinition"])
            return tasks.run_task(self.fleet.cluster, params, definition["taskDefinition"], now)

        return self._effect("RunTask", params, run)

    def stop_task(self, **params: Any) -> dict[str, Any]:
        """Answer StopTask."""

        def stop(now: datetime) -> OperationResult:
            return tasks.stop_task(self.fleet.cluster, params["task"], params["reason"], now)

        return self._effect("StopTask", params, stop)

    def update_container_instances_state(self, **params: Any) -> dict[str, Any]:
        """Answer UpdateContainerInstancesState."""

        def update(now: datetime) -> OperationResult:
            return instances.update_container_instances_state(self.fleet.cluster, params, now)

        return self._effect("UpdateContainerInstancesState", params, update)

    def deregister_container_instance(self, **params: Any) -> dict[str, Any]:
        """Answer DeregisterContainerInstance."""

        def deregister(now: datetime) -> OperationResult:
            reference, force = params["containerInstance"], params["force"]
            return instances.deregister(self.fleet.cluster, reference, force=force, now=now)

        return self._effect("DeregisterContainerInstance", params, deregister)

    def describe_tasks(self, **params: Any) -> dict[str, Any]:
        """Answer DescribeTasks."""
        self.invocations.call("DescribeTasks")
        return describe.describe_tasks(self.fleet.cluster, params, self.fleet.timeline.now)

    def describe_container_instances(self, **params: Any) -> dict[str, Any]:
        """Answer DescribeContainerInstances."""
        self.invocations.call("DescribeContainerInstances")
        return describe.describe_container_instances(self.fleet.cluster, params)

    def get_paginator(self, operation: str) -> EcsModelPages:
        """Return the paginator of `operation`: "list_tasks", or "list_container_instances" for every other name."""
        return EcsModelPages(self, operation)

    def _effect(
        self, operation: str, params: dict[str, Any], change: Callable[[datetime], OperationResult]
    ) -> dict[str, Any]:
        def call() -> dict[str, Any]:
            try:
                return self.fleet.change(change)
            except AwsApiError as error:
                raise _client_error(error, operation) from error

        self.invocations.call(operation)
        return self.invocations.effect(operation, params, call)


def _client_error(error: AwsApiError, operation: str) -> ClientError:
    """Return the refusal of the model as boto3 raises it."""
    body = {
        "Error": {"Code": error.code, "Message": error.message},
        "ResponseMetadata": {"HTTPStatusCode": error.status},
        **error.members,
    }
    return ClientError(cast(Any, body), operation)


class EcsModelPages:
    """A boto3 paginator over the lists of tasks and container instances."""

    def __init__(self, client: EcsModelClient, operation: str) -> None:
        self.client, self.operation = client, operation

    def paginate(self, **params: Any) -> Iterator[dict[str, Any]]:
        """Yield the pages. The list is read once, so that all pages show the cluster at the same instant."""
        cluster, now = self.client.fleet.cluster, self.client.fleet.timeline.now
        if self.operation == "list_tasks":
            call, member = "ListTasks", "taskArns"
            try:
                everything = describe.tasks_listed(cluster, params, now)
            except AwsApiError as error:
                raise _client_error(error, call) from error
        else:
            call, member = "ListContainerInstances", "containerInstanceArns"
            everything = describe.instances_listed(cluster, params)
        request: dict[str, Any] = {}
        while True:
            self.client.invocations.call(call)
            page = describe.page(everything, request, member, "maxResults", "nextToken")
            yield page
            if "nextToken" not in page:
                return
            request = {"nextToken": page["nextToken"]}


class SequentialEcs(SequentialCalls, Ecs):
    """The production wrapper `Ecs` with sequential calls."""

    def __init__(self, client: EcsModelClient, cluster: str, clock: Callable[[], datetime]) -> None:
        super().__init__(cluster, clock)
        self.client = client

    client: EcsModelClient

    def overrides(self, task: Fields) -> Overrides:
        """Return the overrides of a task. `task` is the task as an event shows it."""
        return overrides_of(task)

    def instance_reported(self, instance_id: str, shown: InstanceObserved) -> None:
        """Called with each event about a container instance. `CachedEcs` saves the event; this class does not."""

    def task_reported(self, fact: TaskFact) -> None:
        """Called with each event about a task. `CachedEcs` saves the event; this class does not."""
