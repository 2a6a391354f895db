"""The product as a policy: its own loop, parsers, scheduler and reconciler in the virtual world."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.job.spec import WARM_SPARES_MAX
from gpu_recovery.core.policy import PRESETS, GangCheck, Preset, RecoveryPolicy
from gpu_recovery.execution.stop import STOP_GRACE_S

from sandbox.cluster.model.health import GROUP_TAG
from simulator.cloud.agents import HOLDABLE_PACE_S
from simulator.cloud.fleet import FleetTimings
from simulator.cloud.rate_limits import Costs, Limit
from simulator.cloud.workloads import DEEP
from simulator.fast.fidelity import LARGE
from simulator.goodput.agent_reports import QuietAgents, ReportingStore
from simulator.goodput.assumptions import Conditions
from simulator.goodput.failure_trace import FailureTrace
from simulator.goodput.gang_rules import with_spares
from simulator.goodput.operators import Operators
from simulator.goodput.policy import InstanceReboot, PolicyRun
from simulator.goodput.quiet_hours import QuietHours
from simulator.goodput.trainer import Trainer
from simulator.invocations import Effect
from simulator.lambda_runtime import WAKE
from simulator.world import World

GROUP = "training"
"""Auto Scaling group of all instances."""
SHUTS_DOWN_S = 15.0
"""Seconds of a reboot until the instance is off. The rest of `reboot_s` is the boot."""
BEGINS_WITHIN_S = 6 * 3_600.0
"""Seconds within which the first attempt must begin to train."""
FOR_MONTHS: Mapping[str, Any] = {
    "attempts_max": 100,
    "retry_exits": True,
    "replace": True,
}
"""Settings of an operator for a job of weeks.

They allow a failure that returns until an operator has found its cause, launchers that exit with 1 for any cause, and
the replacement of instances.
"""


def timings(conditions: Conditions, level: int) -> FleetTimings:
    """Return the conditions as delays of the virtual fleet."""
    return FleetTimings(
        start_s=conditions.start_s,
        leave_s=conditions.leave_s,
        down_s=SHUTS_DOWN_S,
        boot_s=conditions.reboot_s - SHUTS_DOWN_S,
        launch_s=conditions.replace_s,
        check_s=conditions.check_s(level),
        deep_check_s=conditions.check_s(DEEP),
    )


def costs(conditions: Conditions) -> Costs:
    """Return the conditions as limits and delays of the virtual AWS calls."""
    ecs = Limit(round(conditions.calls_burst), conditions.calls_per_s)
    return Costs(ecs=ecs, call_s=conditions.call_s, store_s=conditions.store_s, cpu_s=conditions.call_cpu_s)


WARM_S = 300
"""Seconds for which Lambda is assumed to keep an idle function warm."""


class EventDelivery:
    """Delivery of events and wake-ups.

    Events take `event_s`. A wake-up takes `wake_s`, or `event_s`, which includes the start of a function, if no other
    came in the `WARM_S` seconds before.
    """

    def __init__(self, conditions: Conditions, clock: Callable[[], datetime]) -> None:
        self._conditions, self._clock = conditions, clock
        self._woken_at = datetime.min.replace(tzinfo=UTC)

    def __call__(self, envelope: Mapping[str, Any]) -> tuple[float]:
        """Return the seconds until the event arrives."""
        if envelope["detail-type"] != WAKE:
            return (self._conditions.event_s,)
        is_warm = self._clock() < self._woken_at + timedelta(seconds=WARM_S)
        self._woken_at = self._clock()
        return (self._conditions.wake_s if is_warm else self._conditions.event_s,)


class ProductObserver:
    """Observer of the product's effects: when it detects a failure, and which instances it reboots or replaces."""

    def __init__(self) -> None:
        self.trainer: Trainer
        self.reboots: list[InstanceReboot] = []
        self.replacements = 0

    def before(self, step: Effect) -> None:
        """Note the first save of the job after a failure became visible as its detection; count reboots."""
        interruption = self.trainer.broken
        if interruption is not None and interruption.detected_at is None and step.name == "store.save_job":
            now, job = self.trainer.elapsed(), step.given["given"][0]
            if now >= interruption.shown_at or job.status is JobStatus.STOPPING:
                interruption.detected_at = now
        if step.name == "RebootInstances":
            needed = self.trainer.faults.needs_reboot(step.given["instance"])
            self.reboots.append(InstanceReboot(self.trainer.elapsed(), needed))

    def after(self, step: Effect) -> None:
        """Count replacements that EC2 Auto Scaling accepted."""
        self.replacements += step.name == "TerminateInstanceInAutoScalingGroup"


@dataclass(frozen=True)
class Production:
    """gpu-recovery as a policy: a preset, and the settings of an operator on top of it.

    agents: whether a node agent reports from each instance.
    reports_progress: whether the ranks report their progress through the agents.
    memory_checkpoints: whether the trainer saves its state in the memory of the instances.
    lemons: whether instances that failed often are placed last, if the policy says so.
    stands_by: whether each container has a standby process.
    """

    name: str
    preset: Preset
    level: int = 2
    spares: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict)
    agents: bool = False
    reports_progress: bool = False
    memory_checkpoints: bool = False
    lemons: bool = False
    stands_by: bool = False

    @property
    def is_slow(self) -> bool:
        """True: every event of every rank goes through the product's own code."""
        return True

    @property
    def about(self) -> str:
        """Rules of the policy in one sentence."""
        changed = ", ".join(f"{name} {value}" for name, value in self.settings.items()) or "nothing changed"
        agents = " with node agents" if self.agents else ""
        return (
            f"the production loop in the virtual world{agents}: preset {self.preset}, {changed}; "
            f"checks of level {self.level}, {self.spares} spare"
        )

    def policy(self) -> RecoveryPolicy:
        """Return the recovery policy of the product in this run."""
        return replace(PRESETS[self.preset], **self.settings)

    def run(self, trace: FailureTrace) -> PolicyRun:
        """Go through the failure trace.

        Raises:
            RuntimeError: the job did not begin to train, or a function of the product failed.
        """
        return self.run_observed(trace, ProductObserver())

    def run_observed(
        self,
        trace: FailureTrace,
        observer: ProductObserver,
        prepare: Callable[[World], object] = lambda world: None,
        instance_ids: Sequence[str] = (),
    ) -> PolicyRun:
        """Go through the failure trace with an observer of its own.

        Args:
            trace: the failures.
            observer: sees each effect of the product.
            prepare: called with the world before the job is submitted.
            instance_ids: ids of the first instances, in the order of their launch.

        Raises:
            RuntimeError: the job did not begin to train, or a function of the product failed.
        """
        conditions, profile, policy = trace.conditions, trace.profile, self.policy()
        store = ReportingStore()
        world = World(
            store=store,
            instances=profile.instances + self.spares,
            gpus=profile.gpus,
            policy=policy,
            timings=timings(conditions, self.level),
            costs=costs(conditions),
            nemesis=observer,
            fidelity=LARGE,
            diagnose=policy.diagnose,
            lemons=self.lemons,
            seed=f"goodput/{profile.name}/{trace.seed}",
            instance_ids=instance_ids,
        )
        world.delivery = EventDelivery(conditions, world.timeline.clock)
        world.functions.poke_s = conditions.wake_s
        operators = Operators(world, trace)
        trainer = Trainer(world, trace, self.level, operators.came_back)
        trainer.stands_by = self.stands_by
        observer.trainer = operators.trainer = trainer
        if self.agents:
            self._start_agents(world, store, trainer)
        QuietHours(world, store, trainer)
        for instance in world.model_instances():
            instance.tags[GROUP_TAG] = GROUP
        world.actions.on_message = operators.on_message
        prepare(world)
        world.submit(profile.instances, profile.gpus)
        self._advance(world, trainer, trace.ends_s - trace.begins_s)
        unfinished = trainer.unfinished()
        return PolicyRun(
            (*trainer.episodes, *(() if unfinished is None else (unfinished,))),
            tuple(observer.reboots),
            observer.replacements,
            operators.mails,
            operators.called,
            trainer.unnoticed,
            self.spares,
        )

    def _start_agents(self, world: World, store: ReportingStore, trainer: Trainer) -> None:
        """Start an agent on each instance.

        `respawn_s` includes the wait for the report of an agent, and the time in which the former processes leave. Here
        both come before the start command, so they are not counted again.
        """
        conditions = trainer.trace.conditions
        leave_s = min(conditions.leave_s, STOP_GRACE_S)
        world.fleet.ranks.restart_s = max(0.0, conditions.respawn_s - leave_s - HOLDABLE_PACE_S)
        store.attempts_kept = None  # the container of a rank may be that of an attempt long ago
        trainer.reports_progress = self.reports_progress
        trainer.agents = world.agents = QuietAgents(world, store, trainer)
        trainer.agents.leave_s = leave_s
        store.on_command = trainer.ordered

    def _advance(self, world: World, trainer: Trainer, seconds: float) -> None:
        timeline = world.timeline
        limit = timeline.now + timedelta(seconds=BEGINS_WITHIN_S)
        while trainer.began is None:
            if not world.step(limit):
                raise RuntimeError(f"{self.name}: the job did not begin within {BEGINS_WITHIN_S:.0f} s")
        limit = trainer.began + timedelta(seconds=seconds)
        while world.step(limit):
            pass
        for name, failure in world.failures:
            raise RuntimeError(f"{self.name}: {name} failed in the middle of the run") from failure


def adaptive(
    level: int, spares: int, settings: Mapping[str, Any] = FOR_MONTHS, *, memory_checkpoints: bool = False
) -> Production:
    """The product as recommended for a job of weeks, without node agents.

    Args:
        level: level of the health checks.
        spares: spare instances.
        settings: the thresholds of the recovery policy that the operator sets.
        memory_checkpoints: whether the trainer saves its state in the memory of the instances.
    """
    name = with_spares("adaptive", spares)
    return Production(name, Preset.ADAPTIVE, level, spares, settings, memory_checkpoints=memory_checkpoints)


class Feature(StrEnum):
    """Features that need node agents. Each includes those before it.

    PROGRESS: the ranks report their progress, and a hang is noticed by its absence.
    EVIDENCE: the gang is checked only without evidence of the agents, or after a repeated failure.
    IN_PLACE: the containers stay, and only the rank of an instance that is left out is a new task.
    IDLE_CHECKS: an idle spare has a check of level 3 once a day.
    STANDBY: each idle spare is a warm spare, and a process stands by in each container. If all ranks start in such
        containers, the set-up takes only the share `warm_share` of its time.
    """

    PROGRESS = "progress"
    EVIDENCE = "evidence"
    IN_PLACE = "in place"
    IDLE_CHECKS = "idle checks"
    STANDBY = "standby"


SETTINGS_OF: Mapping[Feature, Mapping[str, Any]] = {
    Feature.PROGRESS: {"gang_check": GangCheck.ALWAYS},
    Feature.EVIDENCE: {},
    Feature.IN_PLACE: {"restart_in_place": True},
    Feature.IDLE_CHECKS: {"restart_in_place": True, "idle_check_every_s": 86_400},
    Feature.STANDBY: {"restart_in_place": True, "idle_check_every_s": 86_400},
}
"""What each feature sets beside `FOR_MONTHS`."""


def with_agents(
    level: int, spares: int, feature: Feature = Feature.IDLE_CHECKS, *, memory_checkpoints: bool = False
) -> Production:
    """The product with a node agent on each instance and ranks that report their progress.

    Args:
        level: level of the health checks.
        spares: spare instances.
        feature: the last feature that is on.
        memory_checkpoints: whether the trainer saves its state in the memory of the instances.
    """
    added = "" if feature is Feature.IDLE_CHECKS else f", {feature}"
    name = f"adaptive with agents{added}" + (", memory checkpoints" if memory_checkpoints else "")
    settings = {**FOR_MONTHS, **SETTINGS_OF[feature]}
    if feature is Feature.STANDBY:
        settings["warm_spares"] = min(spares, WARM_SPARES_MAX)
    return Production(
        with_spares(name, spares),
        Preset.ADAPTIVE,
        level,
        spares,
        settings,
        agents=True,
        reports_progress=True,
        memory_checkpoints=memory_checkpoints,
        stands_by=feature is Feature.STANDBY,
    )


def seed_001(level: int) -> Production:
    """The first generation: one retry on the same instances, after exit code 1 and a failed check; without spares."""
    return Production("seed 001", Preset.CLASSIC, level)
