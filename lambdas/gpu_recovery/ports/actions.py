"""Commands to AWS and questions to AWS: ECS tasks, EC2 instances, notifications, and the job archive.

`aws/` implements them on AWS and `simulator/` in memory.
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
from gpu_recovery.ports.values import Ec2Instance, Ec2InstanceStatus, Refusal


class Actions(Protocol):
    """Orders to AWS and questions to it. Each is safe to repeat, or says OutcomeUnknown."""

    def run_ranks(self, job: Job, plan: Plan) -> tuple[str | Refusal, ...]:
        """One ECS task per rank on its instance; the task ids, or why not, in rank order."""

    def run_check(self, instance: Instance, check_id: str, refusals: int) -> str | Refusal:
        """The check's task id, or why not; `refusals` noes so far make this another request than the last.

        A check that is passive (`instance.check`) takes no GPU: others work on the instance.
        """

    def stop_tasks(self, task_ids: Sequence[str], reason: str) -> None:
        """StopTask for each; a task that ECS does not know or that has stopped is no error."""

    def stop_task(self, task_id: str, reason: str) -> bool:
        """StopTask for one; False if ECS knows no such task."""

    def tasks_started_by(self, started_by: str) -> tuple[str, ...]:
        """The ids of the tasks with this `startedBy`, running or lately stopped."""

    def describe_tasks(self, task_ids: Sequence[str]) -> tuple[TaskFact, ...]:
        """What ECS says of those tasks it still knows."""

    def running_tasks(
        self, unreadable: list[Exception] | None = None, known: Collection[str] = ()
    ) -> Iterable[TaskFact]:
        """Every task of the cluster that is to run, but those whose ids are `known`.

        One that nobody can read is raised, or goes to `unreadable`.
        """

    def tasks_on(self, instance: Instance) -> tuple[TaskFact, ...]:
        """Every task on the instance that is to run, whoever started it."""

    def describe_ec2(self, instance_ids: Sequence[str]) -> Mapping[str, Ec2Instance]:
        """What EC2 says of those of the instances that it still knows."""

    def describe_ec2_status(self, instance_ids: Sequence[str]) -> Mapping[str, Ec2InstanceStatus]:
        """What EC2's status checks and scheduled events say of those of the instances that it still knows."""

    def container_instances(self, unreadable: list[Exception] | None = None) -> Iterable[tuple[str, InstanceObserved]]:
        """Every container instance of the cluster as (EC2 instance id, what ECS says).

        One that nobody can read is raised, or goes to `unreadable`.
        """

    def describe_instance(self, container_instance_id: str) -> tuple[str, InstanceObserved] | None:
        """One container instance as (EC2 instance id, what ECS says); None if ECS does not know it."""

    def drain(self, instance: Instance) -> None:
        """Set the container instance to DRAINING, so that ECS places no task on it."""

    def activate(self, instance: Instance) -> None:
        """Set the container instance to ACTIVE, so that ECS places tasks on it again."""

    def reboot(self, instance_id: str) -> Refusal | None:
        """RebootInstances; why not, if EC2 definitely refuses. Raises OutcomeUnknown if the answer was lost."""

    def replace(self, instance_id: str, group: str) -> Refusal | None:
        """Terminate it in its Auto Scaling group `group`, which puts another in its place; "": stop it. Why not, else.

        Both may be asked for again.
        """

    def start(self, instance_id: str) -> Refusal | None:
        """Start the stopped machine; why not, if EC2 definitely refuses. It may be asked for again."""

    def deregister(self, container_instance_id: str) -> None:
        """Take a registration away by force, tasks or not; one that ECS does not know is no error."""

    def load_verdict(self, check_id: str) -> Verdict | None:
        """The document that the check left, None if there is none with its id. Raises VerdictUnreadable."""

    def log_tail(self, job: Job, task_id: str, most: int) -> tuple[str, ...] | str:
        """The last `most` lines that the job's container wrote in the task, or why there are none, in a sentence."""

    def notify(self, message: NotifyOperator) -> None:
        """Send one notification to operators, by the channel that it names."""

    def publish(self, event: PublishEvent, causation_id: str) -> None:
        """Put it on the bus; the decision `causation_id` (`<record>/<version>`) has ordered it."""

    def poke_scheduler(self, key: str) -> None:
        """Ask for a pass of the scheduler; `key` names the decision that asks, and deduplicates the message."""

    def record_submitted(self, job: Job, submitted: str) -> None:
        """Write the text that the job was submitted with where people keep records."""

    def record_attempt(self, job: Job, plan: Plan, view: Mapping[str, Any]) -> None:
        """Write what is known of one attempt there: `view` as clients see it, and what its backend was sent."""
