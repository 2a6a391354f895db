"""`ports.Actions` on the cluster model: the production request builders, answered under virtual time."""

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

from simulator.cloud.ec2 import ModelEc2
from simulator.cloud.ecs import SequentialEcs
from simulator.cloud.fleet import VirtualFleet
from simulator.cloud.workloads import NO_LOG, Checks, Training
from simulator.invocations import Invocations

BUCKET, CHECK_LEVEL, CHECK_TIMEOUT_S = "verdicts", 2, 2_400


class SimulatedActions(ClusterActions):
    """Actions on the model, and what was sent to operators and other systems."""

    ecs: SequentialEcs
    ec2: ModelEc2

    def __init__(
        self,
        ecs: SequentialEcs,
        fleet: VirtualFleet,
        training: Training,
        checks: Checks,
        lives: Invocations,
        check_definition: str,
        poked: Callable[[str], None],
    ) -> None:
        self.ecs, self.fleet, self.training, self.checks, self.invocations = ecs, fleet, training, checks, lives
        self.ec2 = ModelEc2(fleet, lives)
        self.check_task = CheckTask(check_definition, BUCKET, CHECK_LEVEL, True, CHECK_TIMEOUT_S)
        self._poked = poked
        self.notified: list[tuple[datetime, NotifyOperator]] = []
        self.published: list[PublishEvent] = []
        self.remembers = True
        """Whether `published` is kept, of which there are several for each instance and incident."""
        self.on_message: Callable[[NotifyOperator], None] = lambda message: None

    def load_verdict(self, check_id: str) -> Verdict | None:
        self.invocations.call()
        return self.checks.bucket.get(check_id)

    def log_tail(self, job: Job, task_id: str, most: int) -> tuple[str, ...] | str:
        self.invocations.call()
        found = self.training.log(task_id, most)
        if found == NO_LOG:
            return found
        # Of all looks the one that may fail: whole decisions hang on it, and it is asked four times for each failure.
        return self.invocations.effect("GetLogEvents", {"task": task_id}, lambda: found)

    def notify(self, message: NotifyOperator) -> None:
        def send() -> None:
            self.notified.append((self.fleet.timeline.now, message))
            self.on_message(message)

        self.invocations.call()
        self.invocations.effect("Publish", {"incident": message.incident_id}, send)

    def publish(self, event: PublishEvent, causation_id: str) -> None:
        def send() -> None:
            if self.remembers:
                self.published.append(event)

        self.invocations.call()
        self.invocations.effect("PutEvents", {"type": event.detail_type}, send)

    def poke_scheduler(self, key: str) -> None:
        self.invocations.call()
        self.invocations.effect("SendMessage", {"key": key}, lambda: self._poked(key))

    def record_submitted(self, job: Job, submitted: str) -> None:
        """Nobody reads records here."""

    def record_attempt(self, job: Job, plan: Plan, view: Mapping[str, Any]) -> None:
        """Nobody reads records here."""
