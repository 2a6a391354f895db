"""ECS as the production wrapper calls it, answered by the cluster model; and that wrapper without its threads."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, cast

from botocore.exceptions import ClientError
from gpu_recovery.aws.ecs import Ecs
from gpu_recovery.aws.ecs_events import Overrides, overrides_of
from gpu_recovery.aws.ecs_requests import rank_request
from gpu_recovery.aws.fields import Fields
from gpu_recovery.core.attempt import Plan
from gpu_recovery.core.events import InstanceObserved
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.task import TaskFact
from gpu_recovery.ports.values import Refusal
from gpu_recovery.recovery import sequentially

from sandbox.cluster.model import describe, instances, tasks
from sandbox.cluster.model.cluster import AwsApiError, OperationResult
from sandbox.cluster.task_definitions import MemoryDefinitions
from simulator.cloud.fleet import VirtualFleet
from simulator.invocations import Invocations

LISTED_INSTANCES = ("list_container_instances", "containerInstanceArns")


class EcsModelClient:
    """A boto3 ECS client, as far as the product calls one. Every call that changes something is a step of a life."""

    def __init__(self, fleet: VirtualFleet, definitions: MemoryDefinitions, lives: Invocations) -> None:
        self.fleet, self.definitions, self.invocations = fleet, definitions, lives

    def run_task(self, **params: Any) -> dict[str, Any]:
        def run(now: datetime) -> OperationResult:
            definition = self.definitions.describe_task_definition(taskDefinition=params["taskDefinition"])
            return tasks.run_task(self.fleet.cluster, params, definition["taskDefinition"], now)

        return self._effect("RunTask", params, run)

    def stop_task(self, **params: Any) -> dict[str, Any]:
        def stop(now: datetime) -> OperationResult:
            return tasks.stop_task(self.fleet.cluster, params["task"], params["reason"], now)

        return self._effect("StopTask", params, stop)

    def update_container_instances_state(self, **params: Any) -> dict[str, Any]:
        def update(now: datetime) -> OperationResult:
            return instances.update_container_instances_state(self.fleet.cluster, params, now)

        return self._effect("UpdateContainerInstancesState", params, update)

    def deregister_container_instance(self, **params: Any) -> dict[str, Any]:
        def deregister(now: datetime) -> OperationResult:
            reference, force = params["containerInstance"], params["force"]
            return instances.deregister(self.fleet.cluster, reference, force=force, now=now)

        return self._effect("DeregisterContainerInstance", params, deregister)

    def describe_tasks(self, **params: Any) -> dict[str, Any]:
        self.invocations.call()
        return describe.describe_tasks(self.fleet.cluster, params, self.fleet.timeline.now)

    def describe_container_instances(self, **params: Any) -> dict[str, Any]:
        self.invocations.call()
        return describe.describe_container_instances(self.fleet.cluster, params)

    def get_paginator(self, operation: str) -> EcsModelPages:
        return EcsModelPages(self, operation)

    def _effect(
        self, operation: str, params: dict[str, Any], change: Callable[[datetime], OperationResult]
    ) -> dict[str, Any]:
        def call() -> dict[str, Any]:
            try:
                return self.fleet.change(change)
            except AwsApiError as error:
                body = {"Error": {"Code": error.code, "Message": error.message}, **error.members}
                raise ClientError(cast(Any, body), operation) from error

        self.invocations.call(operation)
        return self.invocations.effect(operation, params, call)


class EcsModelPages:
    """A boto3 paginator over the model's lists."""

    def __init__(self, client: EcsModelClient, operation: str) -> None:
        self.client, self.operation = client, operation

    def paginate(self, **params: Any) -> Iterator[dict[str, Any]]:
        """The answer is looked up once and cut into pages: all of them show the cluster at one instant."""
        cluster, now = self.client.fleet.cluster, self.client.fleet.timeline.now
        if self.operation == "list_tasks":
            member, everything = "taskArns", describe.list_tasks(cluster, {**params, "maxResults": sys.maxsize}, now)
        else:
            member = "containerInstanceArns"
            everything = describe.list_container_instances(cluster, {**params, "maxResults": sys.maxsize})
        asked: dict[str, Any] = {}
        while True:
            self.client.invocations.call()
            page = describe.page(everything[member], asked, member, "maxResults", "nextToken")
            yield page
            if "nextToken" not in page:
                return
            asked = {"nextToken": page["nextToken"]}


class SequentialEcs(Ecs):
    """The production wrapper with its calls made one after another: threads have no place in virtual time.

    for_each: makes the calls that production makes from several threads.
    """

    def __init__(self, client: EcsModelClient, cluster: str, clock: Callable[[], datetime]) -> None:
        super().__init__(cluster, clock)
        self.client = client
        self.for_each: Callable[[Callable[[Any], object], Iterable[Any]], object] = sequentially

    client: EcsModelClient

    def run_ranks(self, job: Job, plan: Plan, master_ip: str) -> tuple[str | Refusal, ...]:
        answers: dict[int, str | Refusal] = {}

        def launch(rank: int) -> None:
            answers[rank] = self.run(rank_request(self.cluster, job, plan, rank, master_ip))

        self.for_each(launch, range(len(plan.instances)))
        return tuple(answers.values())

    def stop_tasks(self, task_ids: Sequence[str], reason: str) -> None:
        self.for_each(lambda task_id: self.stop_task(task_id, reason), task_ids)

    def overrides(self, told: Fields) -> Overrides:
        """Read what a task was given, from the detail of an event about it."""
        return overrides_of(told)

    def instance_reported(self, instance_id: str, shown: InstanceObserved) -> None:
        """Called with each event about a container instance. `CachedEcs` stores it; this class does not."""

    def task_reported(self, fact: TaskFact) -> None:
        """Called with each event about a task. `CachedEcs` stores it; this class does not."""
