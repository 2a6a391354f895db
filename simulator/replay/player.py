"""Player: runs the production loop on the facts of a course, and records its events as a deployment would."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gpu_recovery.aws.notification_requests import event_entry
from gpu_recovery.core.commands import PublishEvent
from gpu_recovery.core.event_history.recorded_event import event_of, text_of
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.policy import Preset, RecoveryPolicy
from gpu_recovery.core.published_events import utc_text
from gpu_recovery.core.replay_facts import policy_document

from simulator.goodput.failure_trace import FailureTrace
from simulator.goodput.policy import PolicyRun
from simulator.goodput.production import Production, ProductObserver
from simulator.invocations import Effect
from simulator.replay.course import Course, courses_of
from simulator.world import World

CHECKED = (InstanceStatus.CHECKING.value, InstanceStatus.VERIFYING.value)
"""Statuses in which an instance is checked."""


@dataclass(frozen=True)
class Eviction:
    """An instance that the product took out of use for a repair.

    action:  the call of EC2.
    failure: the failure whose fault the instance had; None if it had no fault.
    """

    at_s: float
    instance_id: str
    action: str
    failure: int | None


@dataclass(frozen=True)
class Played:
    """A played course.

    run:       the figures of the run.
    evictions: instances that were taken out of use, with their fault.
    checks:    number of health checks.
    quarantines: number of instances that were left to an operator.
    texts:     the stored events, in the order of their sending.
    course:    the course that the events tell.
    """

    run: PolicyRun
    evictions: tuple[Eviction, ...]
    checks: int
    quarantines: int
    texts: tuple[str, ...]
    course: Course


class Recorder(ProductObserver):
    """Observer that also notes evictions and checks, and the events that the product publishes."""

    def __init__(self) -> None:
        super().__init__()
        self.evictions: list[Eviction] = []
        self.checks = 0
        self.texts: list[str] = []
        self.now: Any = None

    def prepare(self, world: World) -> None:
        """Record the events of the world from now on."""
        world.actions.on_event = self._published
        self.now = lambda: world.timeline.now

    def before(self, step: Effect) -> None:
        """Note an eviction before it happens, while the fault of the instance is known."""
        super().before(step)
        if step.name in ("RebootInstances", "TerminateInstanceInAutoScalingGroup", "StopInstances"):
            name = step.given["instance"]
            fault = self.trainer.faults.uncured(name)
            number = None if fault is None else fault.failure.number
            self.evictions.append(Eviction(self.trainer.elapsed(), name, step.name, number))

    def _published(self, event: PublishEvent, cause: str) -> None:
        entry = event_entry(event, cause, "gpu-recovery")
        self.texts.append(text_of(entry["DetailType"], json.loads(entry["Detail"]), utc_text(self.now())))


def play(
    trace: FailureTrace,
    policy: RecoveryPolicy,
    *,
    instances: int,
    ids: tuple[str, ...] = (),
    agents: bool = False,
    reports_progress: bool = False,
    level: int = 2,
) -> Played:
    """Run the production loop on a failure trace under a policy.

    Args:
        trace: the failures.
        policy: the recovery policy.
        instances: instances at the start, spares included.
        ids: their ids, and those of the instances that come later.
        agents: whether a node agent reports from each instance.
        reports_progress: whether the ranks report their progress.
        level: level of the health checks.

    Raises:
        RuntimeError: the job did not begin to train, or a function of the product failed.
    """
    recorder = Recorder()
    production = Production(
        name="replay",
        preset=Preset(policy.preset),
        level=level,
        spares=instances - trace.profile.instances,
        settings=_settings(policy),
        agents=agents,
        reports_progress=reports_progress,
        lemons=policy.lemon_order,
    )
    run = production.run_observed(trace, recorder, recorder.prepare, ids)
    texts = tuple(recorder.texts)
    events = [event_of(text) for text in texts]
    ends: datetime = recorder.now()
    course = next(iter(courses_of(events, ends)))
    checks = sum(event.after in CHECKED for event in events)
    quarantines = sum(event.after == InstanceStatus.QUARANTINED for event in events)
    return Played(run, tuple(recorder.evictions), checks, quarantines, texts, course)


def _settings(policy: RecoveryPolicy) -> Mapping[str, Any]:
    return {name: getattr(policy, name) for name in policy_document(policy) if name != "preset"}
