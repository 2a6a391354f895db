"""The actions on tasks and instances, as `ports.Actions` has them: the same code for AWS and for the simulator."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from gpu_recovery.aws.ec2 import Ec2
from gpu_recovery.aws.ecs import Ecs
from gpu_recovery.aws.ecs_requests import CheckTask, check_request
from gpu_recovery.core.attempt import Plan
from gpu_recovery.core.events import InstanceObserved
from gpu_recovery.core.instance.record import EcsStatus, Instance
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.task import TaskFact
from gpu_recovery.ports.values import Ec2Instance, Ec2InstanceStatus, Refusal


class ClusterActions:
    """Passes each action on to ECS or to EC2; see `ports.Actions` for what each function promises.

    A subclass provides the attributes. Only the clients behind `ecs` and `ec2` differ between AWS and the simulator, so
    the simulator runs the same request builders and reads answers with the same parsers.

    ecs:        the cluster's tasks and container instances.
    ec2:        the instances themselves.
    check_task: how a health check is run.
    """

    ecs: Ecs
    ec2: Ec2
    check_task: CheckTask

    # -- tasks ---------------------------------------------------------------------------------------------------------

    def run_ranks(self, job: Job, plan: Plan) -> tuple[str | Refusal, ...]:
        return self.ecs.run_ranks(job, plan, self.ec2.private_ip(plan.instances[0]))

    def run_check(self, instance: Instance, check_id: str, refusals: int) -> str | Refusal:
        return self.ecs.run(check_request(self.ecs.cluster, self.check_task, instance, check_id, refusals))

    def stop_tasks(self, task_ids: Sequence[str], reason: str) -> None:
        self.ecs.stop_tasks(task_ids, reason)

    def stop_task(self, task_id: str, reason: str) -> bool:
        return self.ecs.stop_task(task_id, reason)

    def tasks_started_by(self, started_by: str) -> tuple[str, ...]:
        return self.ecs.tasks_started_by(started_by)

    def describe_tasks(self, task_ids: Sequence[str]) -> tuple[TaskFact, ...]:
        return self.ecs.describe_tasks(task_ids) if task_ids else ()

    def running_tasks(
        self, unreadable: list[Exception] | None = None, known: Collection[str] = ()
    ) -> Iterable[TaskFact]:
        return self.ecs.running_tasks(unreadable, known)

    def tasks_on(self, instance: Instance) -> tuple[TaskFact, ...]:
        return self.ecs.tasks_on(instance)

    # -- instances -----------------------------------------------------------------------------------------------------

    def describe_ec2(self, instance_ids: Sequence[str]) -> Mapping[str, Ec2Instance]:
        return self.ec2.describe(instance_ids)

    def describe_ec2_status(self, instance_ids: Sequence[str]) -> Mapping[str, Ec2InstanceStatus]:
        return self.ec2.describe_status(instance_ids)

    def container_instances(self, unreadable: list[Exception] | None = None) -> Iterable[tuple[str, InstanceObserved]]:
        return self.ecs.container_instances(unreadable)

    def describe_instance(self, container_instance_id: str) -> tuple[str, InstanceObserved] | None:
        return self.ecs.describe_instance(container_instance_id)

    def drain(self, instance: Instance) -> None:
        self.ecs.set_status(instance, EcsStatus.DRAINING)

    def activate(self, instance: Instance) -> None:
        self.ecs.set_status(instance, EcsStatus.ACTIVE)

    def reboot(self, instance_id: str) -> Refusal | None:
        return self.ec2.reboot(instance_id)

    def replace(self, instance_id: str, group: str) -> Refusal | None:
        return self.ec2.replace(instance_id, group)

    def start(self, instance_id: str) -> Refusal | None:
        return self.ec2.start(instance_id)

    def deregister(self, container_instance_id: str) -> None:
        self.ecs.deregister(container_instance_id)
