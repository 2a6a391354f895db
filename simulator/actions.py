"""`ports.Actions` on the cluster model: the production request builders, answered in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from gpu_recovery.aws.cluster_actions import ClusterActions
from gpu_recovery.aws.ecs_requests import CheckTask
from gpu_recovery.core.attempt import Plan
from gpu_recovery.core.commands import NotifyOperator, PublishEvent
from gpu_recovery.core.health_check import Verdict
from gpu_recovery.core.job.record import Job

from sandbox.cluster.model.cluster import AwsApiError
from simulator.cloud.ec2 import ModelEc2
from simulator.cloud.ecs import SequentialEcs
from simulator.cloud.fleet import VirtualFleet
from simulator.cloud.workloads import NO_LOG, Checks, Training
from simulator.invocations import Invocations

BUCKET, CHECK_LEVEL, CHECK_TIMEOUT_S = "verdicts", 2, 2_400


class SimulatedActions(ClusterActions):
    """The product's actions on the model. Also records what was sent to operators and to other systems."""

    ecs: SequentialEcs
    ec2: ModelEc2

    def __init__(
        self,
        ecs: SequentialEcs,
        fleet: VirtualFleet,
        training: Training,
        checks: Checks,
        invocations: Invocations,
        check_definition: str,
        poked: Callable[[str, int], None],
    ) -> None:
        self.ecs, self.fleet, self.training, self.checks, self.invocations = ecs, fleet, training, checks, invocations
        self.ec2 = ModelEc2(fleet, invocations)
        self.check_task = CheckTask(check_definition, BUCKET, CHECK_LEVEL, True, CHECK_TIMEOUT_S)
        self._poked = poked
        self.notified: list[tuple[datetime, NotifyOperator]] = []
        self.published: list[PublishEvent] = []
        self.remembers = True
        """Whether `published` is recorded: there are several events for each instance and incident."""
        self.causes: list[str] = []
        """The decision that ordered each event of `published`, as `<record>/<version>`."""
        self.on_event: Callable[[PublishEvent, str], None] = lambda event, cause: None
        self.on_message: Callable[[NotifyOperator], None] = lambda message: None

    def load_verdict(self, check_id: str, key: str) -> Verdict | None:
        """Return the verdict document of a health check, or None if the check wrote none."""
        self.invocations.call()
        return self.checks.bucket.get(check_id)

    def task_definition(self, name: str) -> Mapping[str, Any] | None:
        """Return the task definition `name`; None if there is none."""
        self.invocations.call()
        try:
            definition: Mapping[str, Any] = self.ecs.client.definitions.describe_task_definition(taskDefinition=name)
        except AwsApiError:
            return None
        described: Mapping[str, Any] = definition["taskDefinition"]
        return described

    def log_tail(self, job: Job, task_id: str, most: int) -> tuple[str, ...] | str:
        """Return the last `most` lines of a task's log, or the reason why there are none."""
        self.invocations.call()
        lines = self.training.log(task_id, most)
        if lines == NO_LOG:
            return lines
        # The only read that may fail: whole decisions depend on it, and it is called four times for each failure.
        return self.invocations.effect("GetLogEvents", {"task": task_id}, lambda: lines)

    def notify(self, message: NotifyOperator) -> None:
        """Record a message to operators, and pass it to `on_message`."""

        def send() -> None:
            self.notified.append((self.fleet.timeline.now, message))
            self.on_message(message)

        self.invocations.call()
        self.invocations.effect("Publish", {"incident": message.incident_id}, send)

    def publish(self, event: PublishEvent, causation_id: str) -> None:
        """Record an event for other systems, and pass it to `on_event`."""

        def send() -> None:
            if self.remembers:
                self.published.append(event)
                self.causes.append(causation_id)
            self.on_event(event, causation_id)

        self.invocations.call()
        self.invocations.effect("PutEvents", {"type": event.detail_type}, send)

    def poke_scheduler(self, key: str, hops: int = 1) -> None:
        """Put a message with the deduplication id `key` into the scheduler's queue."""
        self.invocations.call()
        self.invocations.effect("SendMessage", {"key": key}, lambda: self._poked(key, hops))

    def record_submitted(self, job: Job, submitted: str) -> None:
        """Do nothing: the simulator reads no job archive."""

    def record_attempt(self, job: Job, plan: Plan, view: Mapping[str, Any]) -> None:
        """Do nothing: the simulator reads no job archive."""
