"""Actions on tasks and instances (part of `ports.Actions`), shared by AWS and the simulator."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from gpu_recovery.aws.ec2 import Ec2
from gpu_recovery.aws.ecs import Ecs
from gpu_recovery.aws.ecs_requests import CheckTask, check_request
from gpu_recovery.core.attempt import Plan
from gpu_recovery.core.events import InstanceObserved
from gpu_recovery.core.identifiers import family_of
from gpu_recovery.core.instance.record import EcsStatus, Instance
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.task import TaskFact
from gpu_recovery.ports.errors import TryAgainSoon
from gpu_recovery.ports.values import Ec2Instance, Ec2InstanceStatus, Refusal

CHECK_FAMILY_REFUSED = Refusal("no job may run in the family of the health check", lasting=True)
"""Refusal of a launch with the task definition of the health check."""


class ClusterActions:
    """Passes each action on to ECS or to EC2; see `ports.Actions` for the contract of each method.

    A subclass provides the attributes. Only the clients behind `ecs` and `ec2` differ between AWS and the simulator. So
    the simulator runs the same request builders and reads answers with the same parsers.

    ecs:        calls for tasks and container instances of the cluster.
    ec2:        calls for EC2 instances.
    check_task: the task definition and parameters of health checks.
    """

    ecs: Ecs
    ec2: Ec2
    check_task: CheckTask

    # -- tasks ---------------------------------------------------------------------------------------------------------

    @property
    def check_task_definition(self) -> str:
        """The task definition of health checks."""
        return self.check_task.task_definition

    def run_ranks(
        self, job: Job, plan: Plan, ranks: Sequence[int], master_ip: str, key: str
    ) -> tuple[str | Refusal | TryAgainSoon, ...]:
        """Start one task for each of `ranks`. `master_ip` is the private IP address of rank 0's instance.

        A job in the family of the health check is refused. Its submission is refused too, but an attacker who controls
        an API function could write such a record, and its command would run with the rights of the health check.
        """
        if family_of(job.spec.task_definition) == family_of(self.check_task.task_definition):
            return (CHECK_FAMILY_REFUSED,) * len(ranks)
        return self.ecs.run_ranks(job, plan, ranks, master_ip, key)

    def run_check(self, instance: Instance, check_id: str, refusals: int, key: str) -> str | Refusal:
        """Start a health check on the instance. Return its task id, or a Refusal."""
        return self.ecs.run(check_request(self.ecs.cluster, self.check_task, instance, check_id, refusals, key))

    def stop_tasks(self, task_ids: Sequence[str], reason: str) -> None:
        """Stop each task, several at a time."""
        self.ecs.stop_tasks(task_ids, reason)

    def stop_task(self, task_id: str, reason: str) -> bool:
        """Stop one task. Return False if ECS does not know the task."""
        return self.ecs.stop_task(task_id, reason)

    def tasks_started_by(self, started_by: str) -> tuple[str, ...]:
        """Return the ids of the tasks with this `startedBy` that run or stopped recently."""
        return self.ecs.tasks_started_by(started_by)

    def describe_tasks(
        self, task_ids: Sequence[str], unreadable: list[Exception] | None = None
    ) -> tuple[TaskFact, ...]:
        """Return ECS's description of these tasks. Without ids no call is made."""
        return self.ecs.describe_tasks(task_ids, unreadable) if task_ids else ()

    def running_tasks(
        self, unreadable: list[Exception] | None = None, known: Collection[str] = ()
    ) -> Iterable[TaskFact]:
        """Return the cluster's tasks with desired status RUNNING, except those in `known`."""
        return self.ecs.running_tasks(unreadable, known)

    def tasks_on(self, instance: Instance) -> tuple[TaskFact, ...]:
        """Return the tasks on the instance with desired status RUNNING."""
        return self.ecs.tasks_on(instance)

    # -- instances -----------------------------------------------------------------------------------------------------

    def describe_ec2(self, instance_ids: Sequence[str]) -> Mapping[str, Ec2Instance]:
        """Return the EC2 state of these instances by id."""
        return self.ec2.describe(instance_ids)

    def describe_ec2_status(self, instance_ids: Sequence[str]) -> Mapping[str, Ec2InstanceStatus]:
        """Return the status checks and scheduled events of these instances by id."""
        return self.ec2.describe_status(instance_ids)

    def container_instances(self, unreadable: list[Exception] | None = None) -> Iterable[tuple[str, InstanceObserved]]:
        """Return each container instance of the cluster as (EC2 instance id, observation)."""
        return self.ecs.container_instances(unreadable)

    def describe_instance(self, container_instance_id: str) -> tuple[str, InstanceObserved] | None:
        """Return a container instance as (EC2 instance id, observation); None if ECS does not know it."""
        return self.ecs.describe_instance(container_instance_id)

    def drain(self, instance: Instance) -> None:
        """Set the container instance to DRAINING."""
        self.ecs.set_status(instance, EcsStatus.DRAINING)

    def activate(self, instance: Instance) -> None:
        """Set the container instance to ACTIVE."""
        self.ecs.set_status(instance, EcsStatus.ACTIVE)

    def reboot(self, instance_id: str) -> Refusal | None:
        """Reboot the instance. Return a Refusal if EC2 definitely refuses."""
        return self.ec2.reboot(instance_id)

    def replace(self, instance_id: str, group: str) -> Refusal | None:
        """Have Auto Scaling group `group` replace the instance, or stop the instance if `group` is ""."""
        return self.ec2.replace(instance_id, group)

    def start(self, instance_id: str) -> Refusal | None:
        """Start the stopped instance. Return a Refusal if EC2 definitely refuses."""
        return self.ec2.start(instance_id)

    def tag(self, instance_id: str, key: str, value: str) -> Refusal | None:
        """Set a tag of the instance, in one try. Return a Refusal if EC2 definitely refuses."""
        return self.ec2.tag(instance_id, key, value)

    def deregister(self, container_instance_id: str) -> None:
        """Deregister a container instance by force, even with tasks."""
        self.ecs.deregister(container_instance_id)
