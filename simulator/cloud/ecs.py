"""ECS as the production wrapper calls it, answered by the cluster model; and that wrapper without its threads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

from botocore.exceptions import ClientError
from gpu_recovery.aws.ecs import Ecs
from gpu_recovery.aws.requests import rank_request
from gpu_recovery.core.attempt import Plan
from gpu_recovery.core.job.record import Job
from gpu_recovery.ports import Refusal

from sandbox.cluster import model_instances as instances
from sandbox.cluster import model_reads as reads
from sandbox.cluster import model_tasks as tasks
from sandbox.cluster.definitions import MemoryDefinitions
from sandbox.cluster.model import ApiError

from ..lives import Lives
from .fleet import Fleet


class ModelClient:
    """A boto3 ECS client, as far as the product calls one. Every call that changes something is a step of a life."""

    def __init__(self, fleet: Fleet, definitions: MemoryDefinitions, lives: Lives) -> None:
        self.fleet, self.definitions, self.lives = fleet, definitions, lives

    def run_task(self, **params: Any) -> dict[str, Any]:
        def run() -> dict[str, Any]:
            definition = self.definitions.describe_task_definition(taskDefinition=params["taskDefinition"])
            return self.fleet.change(
                lambda now: tasks.run_task(self.fleet.cluster, params, definition["taskDefinition"], now)
            )

        return self._effect("RunTask", params, run)

    def stop_task(self, **params: Any) -> dict[str, Any]:
        def stop() -> dict[str, Any]:
            return self.fleet.change(
                lambda now: tasks.stop_task(self.fleet.cluster, params["task"], params["reason"], now)
            )

        return self._effect("StopTask", params, stop)

    def update_container_instances_state(self, **params: Any) -> dict[str, Any]:
        def update() -> dict[str, Any]:
            return self.fleet.change(
                lambda now: instances.update_container_instances_state(self.fleet.cluster, params, now)
            )

        return self._effect("UpdateContainerInstancesState", params, update)

    def deregister_container_instance(self, **params: Any) -> dict[str, Any]:
        def deregister() -> dict[str, Any]:
            reference, force = params["containerInstance"], params["force"]
            return self.fleet.change(
                lambda now: instances.deregister(self.fleet.cluster, reference, force=force, now=now)
            )

        return self._effect("DeregisterContainerInstance", params, deregister)

    def describe_tasks(self, **params: Any) -> dict[str, Any]:
        return reads.describe_tasks(self.fleet.cluster, params, self.fleet.timeline.now)

    def describe_container_instances(self, **params: Any) -> dict[str, Any]:
        return reads.describe_container_instances(self.fleet.cluster, params)

    def get_paginator(self, operation: str) -> Pages:
        return Pages(self, operation)

    def _effect(self, operation: str, params: dict[str, Any], do: Any) -> dict[str, Any]:
        def call() -> dict[str, Any]:
            try:
                answer: dict[str, Any] = do()
            except ApiError as error:
                body = {"Error": {"Code": error.code, "Message": error.message}, **error.members}
                raise ClientError(cast(Any, body), operation) from error
            return answer

        return self.lives.effect(operation, params, call)


class Pages:
    """A boto3 paginator over the model's lists."""

    def __init__(self, client: ModelClient, operation: str) -> None:
        self.client, self.operation = client, operation

    def paginate(self, **params: Any) -> Iterator[dict[str, Any]]:
        cluster, now = self.client.fleet.cluster, self.client.fleet.timeline.now
        while True:
            if self.operation == "list_tasks":
                page = reads.list_tasks(cluster, params, now)
            else:
                page = reads.list_container_instances(cluster, params)
            yield page
            if "nextToken" not in page:
                return
            params = {**params, "nextToken": page["nextToken"]}


class OrderlyEcs(Ecs):
    """The production wrapper with its calls made one after another: threads have no place in virtual time."""

    def run_ranks(self, job: Job, plan: Plan, master_ip: str) -> tuple[str | Refusal, ...]:
        ranks = range(len(plan.instances))
        return tuple(self.run(rank_request(self.cluster, job, plan, rank, master_ip)) for rank in ranks)

    def stop_tasks(self, task_ids: Sequence[str], reason: str) -> None:
        for task_id in task_ids:
            self._stop(task_id, reason)
