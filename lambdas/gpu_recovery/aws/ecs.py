"""Calls to ECS: start, stop and describe tasks, and container instances of the cluster.

ECS reports some refusals with HTTP 200 and a `failures[]` list. So every answer is checked for `failures[]`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import cache, cached_property
from typing import Any, Protocol

from botocore.exceptions import ClientError

from gpu_recovery.aws import ecs_requests
from gpu_recovery.aws.clients import client, is_no_answer
from gpu_recovery.aws.ecs_events import instance_fact, task_fact
from gpu_recovery.aws.fields import EventUnreadable
from gpu_recovery.aws.parallel_calls import CallRate, ParallelCalls
from gpu_recovery.core.attempt import Plan
from gpu_recovery.core.events import InstanceObserved
from gpu_recovery.core.instance.record import EcsStatus, Instance
from gpu_recovery.core.job.rank_overrides import OVERRIDES_CHARACTERS_MAX, characters_of
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.task import TaskFact
from gpu_recovery.ports.errors import TryAgainSoon
from gpu_recovery.ports.values import Refusal

LASTING_ERRORS = (
    "ClientException",
    "ClusterNotFoundException",
    "PlatformTaskDefinitionIncompatibilityException",
    "PlatformUnknownException",
    "UnsupportedFeatureException",
)
"""Errors of RunTask that a repeated request cannot cure."""
DESCRIBED_AT_ONCE = 100
"""Upper bound of tasks or container instances in one Describe call."""


class EcsPages(Protocol):
    """A boto3 paginator of one ECS operation."""

    def paginate(self, **params: Any) -> Iterable[Mapping[str, Any]]:
        """Return the pages of the operation with these parameters."""


class EcsClient(Protocol):
    """The calls of a boto3 ECS client that `Ecs` makes, with boto3's parameters, answers and errors."""

    def run_task(self, **params: Any) -> dict[str, Any]:
        """Start a task (RunTask)."""

    def stop_task(self, **params: Any) -> dict[str, Any]:
        """Stop a task (StopTask)."""

    def describe_tasks(self, **params: Any) -> dict[str, Any]:
        """Describe up to 100 tasks (DescribeTasks)."""

    def describe_container_instances(self, **params: Any) -> dict[str, Any]:
        """Describe up to 100 container instances (DescribeContainerInstances)."""

    def update_container_instances_state(self, **params: Any) -> dict[str, Any]:
        """Set container instances to ACTIVE or DRAINING (UpdateContainerInstancesState)."""

    def deregister_container_instance(self, **params: Any) -> dict[str, Any]:
        """Remove a container instance from the cluster (DeregisterContainerInstance)."""

    def get_paginator(self, operation: str, /) -> EcsPages:
        """Return the paginator of an operation, by boto3's name of the operation."""


class Ecs(ParallelCalls):
    """ECS of one cluster. The client is created at its first use.

    cluster: the cluster's name.
    clock:   gives the present time, which replaces times that ECS leaves out.
    rate:    delays calls of RunTask and StopTask that AWS would throttle; None: no call is delayed.
    """

    def __init__(self, cluster: str, clock: Callable[[], datetime], rate: CallRate | None = None) -> None:
        self.cluster, self.clock, self.rate = cluster, clock, rate

    @cached_property
    def client(self) -> EcsClient:
        """The ECS client."""
        ecs_client: EcsClient = client("ecs")
        return ecs_client

    @contextmanager
    def _at_rate(self) -> Iterator[None]:
        """Make a changing call when the rate allows it, and slow down further calls if AWS throttles it."""
        if self.rate is not None:
            self.rate.take()
        try:
            yield
        except TryAgainSoon:
            if self.rate is not None:
                self.rate.exhausted()
            raise

    def run(self, request: dict[str, Any]) -> str | Refusal:
        """Call RunTask for one task.

        Args:
            request: the parameters, with a client token. A repeated request returns the task that it started before.

        Returns:
            The task id, or a Refusal.
        """
        try:
            with self._at_rate():
                answer = self.client.run_task(**request)
        except ClientError as error:
            return _refused_or_raised(error)
        if answer["tasks"]:
            return str(answer["tasks"][0]["taskArn"]).rsplit("/", 1)[-1]
        # ECS reports one failure for each instance that it considered, up to a thousand. The refusal is lasting only if
        # all reasons are: a single temporary reason is enough to try again.
        reasons = list(dict.fromkeys(failure.get("reason", "no reason") for failure in answer["failures"]))
        lasting = bool(reasons) and all(reason.startswith(ecs_requests.LASTING_FAILURES) for reason in reasons)
        return Refusal(", ".join(reasons) or "no reason", lasting)

    def run_ranks(
        self, job: Job, plan: Plan, ranks: Sequence[int], master_ip: str, key: str
    ) -> tuple[str | Refusal | TryAgainSoon, ...]:
        """Start the tasks of `ranks` in parallel. Return a task id, a Refusal or a throttle for each, in their order.

        After a denied launch of the job, the first is started alone. If AWS denies it too, no other rank is tried.
        """

        def launch(rank: int) -> str | Refusal | TryAgainSoon:
            request = ecs_requests.rank_request(self.cluster, job, plan, rank, master_ip, key)
            size = characters_of(request["overrides"])
            if size > OVERRIDES_CHARACTERS_MAX:
                return Refusal(f"its overrides have {size} characters, ECS allows {OVERRIDES_CHARACTERS_MAX}", True)
            try:
                return self.run(request)
            except TryAgainSoon as throttle:  # the tasks of the other ranks are recorded all the same
                return throttle

        if job.denied is None or job.denied.over:
            return tuple(self.each(launch, ranks))
        first = launch(ranks[0])
        if isinstance(first, Refusal) and first.lacks is not None:
            return (first,) * len(ranks)
        return (first, *self.each(launch, ranks[1:]))

    def stop_tasks(self, task_ids: Sequence[str], reason: str) -> None:
        """Stop these tasks in parallel."""
        self.each(lambda task_id: self.stop_task(task_id, reason), task_ids)

    def stop_task(self, task_id: str, reason: str) -> bool:
        """Stop a task. Return False if ECS does not know it. The reason is cut to 1,024 characters."""
        try:
            with self._at_rate():
                self.client.stop_task(cluster=self.cluster, task=task_id, reason=reason[:1024])
        except ClientError as error:
            # ECS forgets a stopped task after about an hour. Then no task is left to stop.
            if error.response["Error"]["Code"] != "InvalidParameterException":
                raise
            return False
        return True

    def tasks_started_by(self, started_by: str) -> tuple[str, ...]:
        """Return the ids of the tasks with this `startedBy`, running tasks first, then recently stopped tasks."""
        arns: list[str] = []
        for desired in ("RUNNING", "STOPPED"):
            arns += self._list("list_tasks", "taskArns", startedBy=started_by, desiredStatus=desired)
        return tuple(arn.rsplit("/", 1)[-1] for arn in arns)

    def describe_tasks(
        self, task_ids: Sequence[str], unreadable: list[Exception] | None = None
    ) -> tuple[TaskFact, ...]:
        """Return ECS's description of these tasks. Tasks that ECS no longer knows are left out.

        Args:
            task_ids: the ids of the tasks.
            unreadable: collects the errors of tasks that cannot be parsed. Without it the first such error is raised.
        """
        facts: list[TaskFact] = []
        for start in range(0, len(task_ids), DESCRIBED_AT_ONCE):
            ids = list(task_ids[start : start + DESCRIBED_AT_ONCE])
            answer = self.client.describe_tasks(cluster=self.cluster, tasks=ids)
            facts += self._readable(task_fact, answer["tasks"], unreadable)
        return tuple(facts)

    def running_tasks(
        self, unreadable: list[Exception] | None = None, known: Collection[str] = ()
    ) -> Iterator[TaskFact]:
        """Yield the cluster's tasks with desired status RUNNING, except those with an id in `known`."""
        arns = self._list("list_tasks", "taskArns", desiredStatus="RUNNING")
        listed = (arn.rsplit("/", 1)[-1] for arn in arns)
        yield from self.describe_tasks([task_id for task_id in listed if task_id not in known], unreadable)

    def tasks_on(self, instance: Instance) -> tuple[TaskFact, ...]:
        """Return the tasks on the instance with desired status RUNNING. A registration that ECS forgot has none.

        Raises:
            EventUnreadable: a task cannot be parsed.
            TryAgainSoon: ECS lists a task that it does not describe.
        """
        try:
            arns = self._list(
                "list_tasks", "taskArns", containerInstance=instance.container_instance_id, desiredStatus="RUNNING"
            )
        except ClientError as error:
            if error.response["Error"]["Code"] != "InvalidParameterException":
                raise
            return ()
        # An unreadable task is an error here: it may use the GPUs of the instance that is about to be rebooted.
        facts = self.describe_tasks([arn.rsplit("/", 1)[-1] for arn in arns])
        if len(facts) < len(arns):
            # The caller is about to reboot the instance. A task that has just ended leaves the list within seconds.
            raise TryAgainSoon(f"ECS lists {len(arns)} tasks on {instance.instance_id} and describes {len(facts)}")
        return facts

    def container_instances(self, unreadable: list[Exception] | None = None) -> Iterator[tuple[str, InstanceObserved]]:
        """Yield each container instance of the cluster as (EC2 instance id, observation).

        Args:
            unreadable: collects the errors of entries that cannot be parsed. Without it the first such error is raised.
        """
        arns: list[str] = []
        for status in EcsStatus:
            arns += self._list("list_container_instances", "containerInstanceArns", status=status.value)
        for start in range(0, len(arns), DESCRIBED_AT_ONCE):
            yield from self._describe_instances(arns[start : start + DESCRIBED_AT_ONCE], unreadable)

    def describe_instance(self, container_instance_id: str) -> tuple[str, InstanceObserved] | None:
        """Return a container instance as (EC2 instance id, observation); None if ECS does not know it."""
        return next(iter(self._describe_instances([container_instance_id])), None)

    def _describe_instances(
        self, ids: Sequence[str], unreadable: list[Exception] | None = None
    ) -> list[tuple[str, InstanceObserved]]:
        answer = self.client.describe_container_instances(
            cluster=self.cluster, containerInstances=list(ids), include=["CONTAINER_INSTANCE_HEALTH"]
        )
        return list(self._readable(instance_fact, answer["containerInstances"], unreadable))

    def _readable(
        self, read: Callable[[Any, datetime], Any], entries: Iterable[Any], unreadable: list[Exception] | None
    ) -> Iterator[Any]:
        """Yield the parsed entries. Errors of entries that cannot be parsed go to `unreadable`, or are raised."""
        for entry in entries:
            try:
                yield read(entry, self.clock())
            except EventUnreadable as error:
                if unreadable is None:
                    raise
                unreadable.append(error)

    def deregister(self, container_instance_id: str) -> None:
        """Deregister a container instance by force. An id that ECS does not know is ignored.

        Without force, a registration with a dead ECS agent would keep its tasks RUNNING for ever.
        """
        try:
            self.client.deregister_container_instance(
                cluster=self.cluster, containerInstance=container_instance_id, force=True
            )
        except ClientError as error:
            # ECS does not know the container instance, or has deregistered it before.
            if error.response["Error"]["Code"] != "InvalidParameterException":
                raise

    def _list(self, operation: str, key: str, **filters: Any) -> list[str]:
        pages = self.client.get_paginator(operation).paginate(cluster=self.cluster, **filters)
        return [arn for page in pages for arn in page[key]]

    def set_status(self, instance: Instance, status: EcsStatus) -> None:
        """Set the container instance to ACTIVE or DRAINING. An instance that has left the cluster is ignored.

        Raises:
            InstanceStatusRefused: ECS refused for another reason.
        """
        answer = self.client.update_container_instances_state(
            cluster=self.cluster, containerInstances=[instance.container_instance_id], status=status.value
        )
        reasons = {failure.get("reason", "") for failure in answer.get("failures", [])}
        if reasons - {"MISSING", "INACTIVE"}:
            raise InstanceStatusRefused(f"{instance.instance_id} to {status}: {', '.join(sorted(reasons))}")


class InstanceStatusRefused(Exception):
    """ECS refused to set the status of a container instance."""


def _refused_or_raised(error: ClientError) -> str | Refusal:
    """Return the task id or the Refusal that an error of RunTask stands for.

    Errors that are no answer are raised. Every other error is a refusal, also with a code that is new to this module.
    """
    code, message = error.response["Error"]["Code"], error.response["Error"].get("Message", "")
    if code == "ConflictException":
        # The client token was used before for a different request (a policy has changed since). The task of that
        # request is the wanted task.
        ids: Any = error.response.get("resourceIds")
        if not ids:
            raise error
        return str(ids[0]).rsplit("/", 1)[-1]
    from gpu_recovery.aws.missing_permissions import missing_permission, unassumed_role  # noqa: PLC0415 - a rare error

    if sentence := unassumed_role(code, message):
        return Refusal(f"{sentence} ({code}: {message})", lasting=True)
    if lacks := missing_permission(code, message):
        return Refusal(f"{code}: {message}", lacks=lacks)
    if is_no_answer(error):
        raise error
    # InvalidParameterException is not among the lasting refusals: ECS also answers so, instead of with failures[],
    # while every instance of the cluster is DRAINING.
    return Refusal(f"{code}: {message}", lasting=code in LASTING_ERRORS)


@cache
def _ecs() -> Any:
    return client("ecs")


def task_definition(name: str) -> Mapping[str, Any] | None:
    """Return the active ECS task definition `name` (family or family:revision); None if there is none."""
    try:
        definition: Mapping[str, Any] = _ecs().describe_task_definition(taskDefinition=name)["taskDefinition"]
    except ClientError as error:
        if error.response["Error"]["Code"] in ("ClientException", "InvalidParameterException"):
            return None  # no such family, or an impossible revision number
        raise
    return definition
