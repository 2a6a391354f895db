"""Orders to ECS and questions to it. `failures[]` is read every time: ECS refuses with HTTP 200."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import cache, cached_property
from typing import Any, Protocol

from botocore.exceptions import ClientError

from gpu_recovery.aws import ecs_requests
from gpu_recovery.aws.clients import client
from gpu_recovery.aws.ecs_events import instance_fact, task_fact
from gpu_recovery.aws.fields import EventUnreadable
from gpu_recovery.core.attempt import Plan
from gpu_recovery.core.events import InstanceObserved
from gpu_recovery.core.instance.record import EcsStatus, Instance
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.task import TaskFact
from gpu_recovery.ports.errors import TryAgainSoon
from gpu_recovery.ports.values import Refusal

PARALLEL = 8
"""Calls at once: with 30 to 100 ms a call this stays under the 100 burst that ECS grants to writes."""
DESCRIBED_AT_ONCE = 100


def in_parallel(work: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
    """`work` for each of `items`, several at a time, answers in order; the first failure is raised at the end."""
    listed = list(items)
    if len(listed) < 2:
        return [work(item) for item in listed]
    with ThreadPoolExecutor(PARALLEL) as pool:
        # Not `map`, which cancels the rest at the first failure: a rank whose stop fails must not spare the others.
        made = [pool.submit(work, item) for item in listed]
    return [one.result() for one in made]


class EcsPages(Protocol):
    """A boto3 paginator of one ECS operation."""

    def paginate(self, **params: Any) -> Iterable[Mapping[str, Any]]: ...


class EcsClient(Protocol):
    """The calls to ECS that `Ecs` makes: those of a boto3 ECS client, with its parameters, answers and errors."""

    def run_task(self, **params: Any) -> dict[str, Any]: ...

    def stop_task(self, **params: Any) -> dict[str, Any]: ...

    def describe_tasks(self, **params: Any) -> dict[str, Any]: ...

    def describe_container_instances(self, **params: Any) -> dict[str, Any]: ...

    def update_container_instances_state(self, **params: Any) -> dict[str, Any]: ...

    def deregister_container_instance(self, **params: Any) -> dict[str, Any]: ...

    def get_paginator(self, operation: str, /) -> EcsPages: ...


class Ecs:
    """The cluster's ECS. The client is made when it is first needed.

    clock: the time that stands in for times that ECS leaves out.
    """

    def __init__(self, cluster: str, clock: Callable[[], datetime]) -> None:
        self.cluster, self.clock = cluster, clock

    @cached_property
    def client(self) -> EcsClient:
        made: EcsClient = client("ecs")
        return made

    def run(self, request: dict[str, Any]) -> str | Refusal:
        """The id of the task that `request` starts or, by its client token, has started before; or why not."""
        try:
            answer = self.client.run_task(**request)
        except ClientError as error:
            return _refused_or_raised(error)
        if answer["tasks"]:
            return str(answer["tasks"][0]["taskArn"]).rsplit("/", 1)[-1]
        # One failure for each instance looked at: there may be a thousand, and one that passes is enough to ask again.
        reasons = list(dict.fromkeys(failure.get("reason", "no reason") for failure in answer["failures"]))
        lasting = bool(reasons) and all(reason.startswith(ecs_requests.LASTING_FAILURES) for reason in reasons)
        return Refusal(", ".join(reasons) or "no reason", lasting)

    def run_ranks(self, job: Job, plan: Plan, master_ip: str) -> tuple[str | Refusal, ...]:
        def launch(rank: int) -> str | Refusal:
            return self.run(ecs_requests.rank_request(self.cluster, job, plan, rank, master_ip))

        return tuple(in_parallel(launch, range(len(plan.instances))))

    def stop_tasks(self, task_ids: Sequence[str], reason: str) -> None:
        in_parallel(lambda task_id: self.stop_task(task_id, reason), task_ids)

    def stop_task(self, task_id: str, reason: str) -> bool:
        try:
            self.client.stop_task(cluster=self.cluster, task=task_id, reason=reason[:1024])
        except ClientError as error:
            # ECS forgets a stopped task after about an hour: then there is nothing left to stop.
            if error.response["Error"]["Code"] != "InvalidParameterException":
                raise
            return False
        return True

    def tasks_started_by(self, started_by: str) -> tuple[str, ...]:
        found: list[str] = []
        for desired in ("RUNNING", "STOPPED"):
            found += self._list("list_tasks", "taskArns", startedBy=started_by, desiredStatus=desired)
        return tuple(arn.rsplit("/", 1)[-1] for arn in found)

    def describe_tasks(
        self, task_ids: Sequence[str], unreadable: list[Exception] | None = None
    ) -> tuple[TaskFact, ...]:
        facts: list[TaskFact] = []
        for start in range(0, len(task_ids), DESCRIBED_AT_ONCE):
            some = list(task_ids[start : start + DESCRIBED_AT_ONCE])
            answer = self.client.describe_tasks(cluster=self.cluster, tasks=some)
            facts += self._readable(task_fact, answer["tasks"], unreadable)
        return tuple(facts)

    def running_tasks(
        self, unreadable: list[Exception] | None = None, known: Collection[str] = ()
    ) -> Iterator[TaskFact]:
        arns = self._list("list_tasks", "taskArns", desiredStatus="RUNNING")
        listed = (arn.rsplit("/", 1)[-1] for arn in arns)
        yield from self.describe_tasks([task_id for task_id in listed if task_id not in known], unreadable)

    def tasks_on(self, instance: Instance) -> tuple[TaskFact, ...]:
        arns = self._list(
            "list_tasks", "taskArns", containerInstance=instance.container_instance_id, desiredStatus="RUNNING"
        )
        # Strict: a task that nobody can read may hold the GPUs that a reboot would take from it.
        facts = self.describe_tasks([arn.rsplit("/", 1)[-1] for arn in arns])
        if len(facts) < len(arns):
            # Whoever asks is about to reboot it. A task that has just ended leaves the listing within seconds.
            raise TryAgainSoon(f"ECS lists {len(arns)} tasks on {instance.instance_id} and describes {len(facts)}")
        return facts

    def container_instances(self, unreadable: list[Exception] | None = None) -> Iterator[tuple[str, InstanceObserved]]:
        arns: list[str] = []
        for status in EcsStatus:
            arns += self._list("list_container_instances", "containerInstanceArns", status=status.value)
        for start in range(0, len(arns), DESCRIBED_AT_ONCE):
            yield from self._describe_instances(arns[start : start + DESCRIBED_AT_ONCE], unreadable)

    def describe_instance(self, container_instance_id: str) -> tuple[str, InstanceObserved] | None:
        return next(iter(self._describe_instances([container_instance_id])), None)

    def _describe_instances(
        self, ids: Sequence[str], unreadable: list[Exception] | None = None
    ) -> list[tuple[str, InstanceObserved]]:
        answer = self.client.describe_container_instances(cluster=self.cluster, containerInstances=list(ids))
        return list(self._readable(instance_fact, answer["containerInstances"], unreadable))

    def _readable(
        self, read: Callable[[Any, datetime], Any], shown: Iterable[Any], unreadable: list[Exception] | None
    ) -> Iterator[Any]:
        """The facts of what can be read of `shown`; why the rest cannot goes to `unreadable`, or is raised."""
        for one in shown:
            try:
                yield read(one, self.clock())
            except EventUnreadable as error:
                if unreadable is None:
                    raise
                unreadable.append(error)

    def deregister(self, container_instance_id: str) -> None:
        """By force: a registration whose agent is dead would keep its tasks RUNNING for ever."""
        try:
            self.client.deregister_container_instance(
                cluster=self.cluster, containerInstance=container_instance_id, force=True
            )
        except ClientError as error:
            # ECS does not know it, or has deregistered it before.
            if error.response["Error"]["Code"] != "InvalidParameterException":
                raise

    def _list(self, operation: str, key: str, **filters: Any) -> list[str]:
        pages = self.client.get_paginator(operation).paginate(cluster=self.cluster, **filters)
        return [arn for page in pages for arn in page[key]]

    def set_status(self, instance: Instance, status: EcsStatus) -> None:
        """ACTIVE or DRAINING; an instance that has left the cluster has no status to set."""
        answer = self.client.update_container_instances_state(
            cluster=self.cluster, containerInstances=[instance.container_instance_id], status=status.value
        )
        reasons = {failure.get("reason", "") for failure in answer.get("failures", [])}
        if reasons - {"MISSING", "INACTIVE"}:
            raise InstanceStatusRefused(f"{instance.instance_id} to {status}: {', '.join(sorted(reasons))}")


class InstanceStatusRefused(Exception):
    """ECS would not set an instance's status."""


def _refused_or_raised(error: ClientError) -> str | Refusal:
    code, message = error.response["Error"]["Code"], error.response["Error"].get("Message", "")
    if code == "ConflictException":
        # The token was used for a request that differs (a policy changed meanwhile): that task is the one we want.
        ids: Any = error.response.get("resourceIds")
        if ids:
            return str(ids[0]).rsplit("/", 1)[-1]
    if code == "InvalidParameterException":
        # Among others what ECS says, instead of failures[], while every instance of the cluster is draining.
        return Refusal(f"{code}: {message}")
    if code in ("ClientException", "ClusterNotFoundException", "AccessDeniedException"):
        return Refusal(f"{code}: {message}", lasting=True)
    raise error


@cache
def _ecs() -> Any:
    return client("ecs")


def task_definition(name: str) -> Mapping[str, Any] | None:
    """The ECS task definition `name` (family or family:revision); None if there is no active one."""
    try:
        definition: Mapping[str, Any] = _ecs().describe_task_definition(taskDefinition=name)["taskDefinition"]
    except ClientError as error:
        if error.response["Error"]["Code"] in ("ClientException", "InvalidParameterException"):
            return None  # no such family, or a revision that no number of ECS can be
        raise
    return definition
