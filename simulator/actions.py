"""`ports.Actions` on the cluster model: the production request builders, answered under virtual time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from gpu_recovery.aws.ecs_requests import CheckTask, check_request
from gpu_recovery.core.attempt import Plan
from gpu_recovery.core.commands import NotifyOperator, PublishEvent
from gpu_recovery.core.events import InstanceObserved
from gpu_recovery.core.health_check import Verdict
from gpu_recovery.core.instance.record import EcsStatus, Instance
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.task import TaskFact
from gpu_recovery.ports.values import Machine, MachineStatus, Refusal

from simulator.cloud.ec2 import ModelEc2
from simulator.cloud.ecs import OrderlyEcs
from simulator.cloud.fleet import Fleet
from simulator.cloud.workloads import NO_LOG, Checks, Training
from simulator.invocations import Lives

BUCKET, CHECK_LEVEL, CHECK_TIMEOUT_S = "verdicts", 2, 2_400


class SimulatedActions:
    """Orders to the model, and what was sent to people and other systems."""

    def __init__(
        self,
        ecs: OrderlyEcs,
        fleet: Fleet,
        training: Training,
        checks: Checks,
        lives: Lives,
        check_definition: str,
        poked: Callable[[str], None],
    ) -> None:
        self.ecs, self.fleet, self.training, self.checks, self.lives = ecs, fleet, training, checks, lives
        self.ec2 = ModelEc2(fleet, lives)
        self.check_definition, self._poked = check_definition, poked
        self.notified: list[tuple[datetime, NotifyOperator]] = []
        self.published: list[PublishEvent] = []
        self.remembers = True
        """Whether `published` is kept, of which there are several for each instance and incident."""
        self.told: Callable[[NotifyOperator], None] = lambda message: None

    def run_ranks(self, job: Job, plan: Plan) -> tuple[str | Refusal, ...]:
        self.lives.check_alive()
        return self.ecs.run_ranks(job, plan, self.fleet.cluster.instances[plan.instances[0]].private_ip)

    def run_check(self, instance: Instance, check_id: str, refusals: int) -> str | Refusal:
        check = CheckTask(self.check_definition, BUCKET, CHECK_LEVEL, True, CHECK_TIMEOUT_S)
        return self.ecs.run(check_request(self.ecs.cluster, check, instance, check_id, refusals))

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

    def machines(self, instance_ids: Sequence[str]) -> Mapping[str, Machine]:
        return self.ec2.machines(instance_ids)

    def machine_statuses(self, instance_ids: Sequence[str]) -> Mapping[str, MachineStatus]:
        return self.ec2.machine_statuses(instance_ids)

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

    def verdict(self, check_id: str) -> Verdict | None:
        self.lives.call()
        return self.checks.bucket.get(check_id)

    def log_tail(self, job: Job, task_id: str, most: int) -> tuple[str, ...] | str:
        self.lives.call()
        found = self.training.log(task_id, most)
        if found == NO_LOG:
            return found
        # Of all looks the one that may fail: whole decisions hang on it, and it is asked four times for each failure.
        return self.lives.effect("GetLogEvents", {"task": task_id}, lambda: found)

    def notify(self, message: NotifyOperator) -> None:
        def send() -> None:
            self.notified.append((self.fleet.timeline.now, message))
            self.told(message)

        self.lives.call()
        self.lives.effect("Publish", {"incident": message.incident_id}, send)

    def publish(self, event: PublishEvent, causation_id: str) -> None:
        def send() -> None:
            if self.remembers:
                self.published.append(event)

        self.lives.call()
        self.lives.effect("PutEvents", {"type": event.detail_type}, send)

    def poke_scheduler(self, key: str) -> None:
        self.lives.call()
        self.lives.effect("SendMessage", {"key": key}, lambda: self._poked(key))

    def record_submitted(self, job: Job, submitted: str) -> None:
        """Nobody reads records here."""

    def record_attempt(self, job: Job, plan: Plan, view: Mapping[str, Any]) -> None:
        """Nobody reads records here."""
