"""Interface of the calls to AWS: ECS tasks, EC2 instances, notifications, and the job archive.

`aws/` implements `Actions` on AWS and `simulator/` in memory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

from gpu_recovery.core.attempt import Plan
from gpu_recovery.core.commands import NotifyOperator, PublishEvent
from gpu_recovery.core.events import InstanceObserved
from gpu_recovery.core.health_check import Verdict
from gpu_recovery.core.instance.record import Instance
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.task import TaskFact
from gpu_recovery.ports.errors import TryAgainSoon
from gpu_recovery.ports.values import Ec2Instance, Ec2InstanceStatus, Refusal


class Actions(Protocol):
    """Calls to AWS that carry out commands or read state. Each call is safe to repeat, or raises OutcomeUnknown.

    Any call raises TryAgainSoon if AWS throttled it and certainly did not carry it out.
    """

    @property
    def check_task_definition(self) -> str:
        """The task definition of health checks: family, family:revision or ARN."""

    def run_ranks(
        self, job: Job, plan: Plan, ranks: Sequence[int], master_ip: str, key: str
    ) -> tuple[str | Refusal | TryAgainSoon, ...]:
        """Start one ECS task for each of `ranks` on its instance.

        Returns:
            For each rank, in order, a task id, a Refusal, or the error of a call that AWS throttled.

        Args:
            master_ip: the private IPv4 address of rank 0's instance, at which the other ranks reach the master.
            key: the launch key, for the launch signature of each task.
        """

    def run_check(self, instance: Instance, check_id: str, refusals: int, key: str) -> str | Refusal:
        """Start a health check on the instance. Return its task id, or a Refusal.

        A passive check (`instance.check`) reserves no GPU, because jobs use the instance.

        Args:
            refusals: how often the command was deferred so far (`PendingCommand.refusals`). It is part of the client
                token, so a retry after a deferral is a new request.
            key: the launch key, for the launch signature of the task.
        """

    def stop_tasks(self, task_ids: Sequence[str], reason: str) -> None:
        """Call StopTask for each task. Tasks that ECS does not know, or that have stopped, are ignored."""

    def stop_task(self, task_id: str, reason: str) -> bool:
        """Call StopTask for one task. Return False if ECS does not know the task."""

    def tasks_started_by(self, started_by: str) -> tuple[str, ...]:
        """Return the ids of the tasks with this `startedBy` that run or stopped recently."""

    def describe_tasks(
        self, task_ids: Sequence[str], unreadable: list[Exception] | None = None
    ) -> tuple[TaskFact, ...]:
        """Return what ECS says about these tasks. Tasks that ECS no longer knows are left out.

        Args:
            task_ids: the ids of the tasks.
            unreadable: collects the errors of tasks that cannot be parsed. Without it the first such error is raised.
        """

    def running_tasks(
        self, unreadable: list[Exception] | None = None, known: Collection[str] = ()
    ) -> Iterable[TaskFact]:
        """Return every task of the cluster with desired status RUNNING.

        Args:
            unreadable: collects the errors of tasks that cannot be parsed. Without it the first such error is raised.
            known: ids of tasks to leave out.
        """

    def tasks_on(self, instance: Instance) -> tuple[TaskFact, ...]:
        """Return every task on the instance with desired status RUNNING, including tasks that others started.

        Raises:
            TryAgainSoon: ECS lists a task that it does not describe.
        """

    def describe_ec2(self, instance_ids: Sequence[str]) -> Mapping[str, Ec2Instance]:
        """Return the EC2 state of these instances by id. Instances that EC2 no longer knows are left out."""

    def describe_ec2_status(self, instance_ids: Sequence[str]) -> Mapping[str, Ec2InstanceStatus]:
        """Return EC2's status checks and scheduled events of these instances by id.

        Instances that EC2 no longer knows are left out.
        """

    def container_instances(self, unreadable: list[Exception] | None = None) -> Iterable[tuple[str, InstanceObserved]]:
        """Return every container instance of the cluster as (EC2 instance id, observation).

        Args:
            unreadable: collects the errors of entries that cannot be parsed. Without it the first such error is raised.
        """

    def describe_instance(self, container_instance_id: str) -> tuple[str, InstanceObserved] | None:
        """Return a container instance as (EC2 instance id, observation); None if ECS does not know it."""

    def drain(self, instance: Instance) -> None:
        """Set the container instance to DRAINING, so that ECS places no task on it."""

    def activate(self, instance: Instance) -> None:
        """Set the container instance to ACTIVE, so that ECS places tasks on it again."""

    def reboot(self, instance_id: str) -> Refusal | None:
        """Call RebootInstances. Return a Refusal if EC2 definitely refuses.

        Raises:
            OutcomeUnknown: no definite answer arrived, so the instance may or may not reboot.
        """

    def replace(self, instance_id: str, group: str) -> Refusal | None:
        """Replace the instance in its Auto Scaling group, or stop it if it is in none. Repeatable.

        Args:
            group: the Auto Scaling group that terminates the instance and launches another; "" to stop the instance.

        Returns:
            A Refusal if AWS definitely refuses.
        """

    def start(self, instance_id: str) -> Refusal | None:
        """Start the stopped instance. Return a Refusal if EC2 definitely refuses. Repeatable."""

    def tag(self, instance_id: str, key: str, value: str) -> Refusal | None:
        """Set a tag of the instance, in one try. Return a Refusal if EC2 definitely refuses.

        Raises:
            OutcomeUnknown: no definite answer arrived.
        """

    def deregister(self, container_instance_id: str) -> None:
        """Deregister a container instance by force, even with tasks. An id that ECS does not know is ignored."""

    def load_verdict(self, check_id: str, key: str) -> Verdict | None:
        """Return the verdict document of the check; None if none with its id is stored.

        Args:
            key: the S3 key in the environment of the check's task (`TaskFact.verdict_key`). No other key is read: every
                check may write documents anywhere, and only this check was told the key.

        Raises:
            VerdictUnreadable: the document is malformed.
        """

    def task_definition(self, name: str) -> Mapping[str, Any] | None:
        """Return the ECS task definition `name` (family or family:revision); None if ECS does not know it."""

    def log_tail(self, job: Job, task_id: str, most: int) -> tuple[str, ...] | str:
        """Return the last `most` lines that the job's container wrote in the task.

        If there is no log to read, return the reason as one sentence.
        """

    def notify(self, message: NotifyOperator) -> None:
        """Send one notification to operators through the channel that the message names."""

    def publish(self, event: PublishEvent, causation_id: str) -> None:
        """Publish the event on the event bus.

        Args:
            causation_id: the decision that ordered the event, as `<record>/<version>`.
        """

    def poke_scheduler(self, key: str, hops: int = 1) -> None:
        """Request a pass of the scheduler.

        Args:
            key: names the decision that requests the pass. Messages with the same key are sent once.
            hops: the number of messages in a row, this message included, of which a pass sent each after the first.
        """

    def record_submitted(self, job: Job, submitted: str) -> None:
        """Write the job's submitted text to the job archive."""

    def record_attempt(self, job: Job, plan: Plan, view: Mapping[str, Any]) -> None:
        """Write one attempt to the job archive.

        Args:
            view: the attempt as API clients see it. The archive adds the request that was sent to the backend.
        """
