"""The product itself as a contender: its own loop, parsers, scheduler and reconciler in the virtual world."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from gpu_recovery.core.policy import PRESETS, Preset, RecoveryPolicy

from sandbox.cluster.model.health import GROUP_TAG
from simulator.cloud.fleet import FleetTimings
from simulator.cloud.rate_limits import Costs, Limit
from simulator.fast.fidelity import LARGE
from simulator.goodput.assumptions import Conditions
from simulator.goodput.failure_trace import FailureTrace
from simulator.goodput.operators import Operators
from simulator.goodput.policy import InstanceReboot, PolicyRun
from simulator.goodput.trainer import Trainer
from simulator.invocations import Effect
from simulator.world import World

GROUP = "training"
SHUTS_DOWN_S = 15.0
"""Of a reboot, until the machine is off; the rest of `reboot_s` is its boot."""
BEGINS_WITHIN_S = 6 * 3_600.0
FOR_MONTHS: Mapping[str, Any] = {
    "attempts_max": 10,
    "retry_exits": True,
    "replace": True,
}
"""What an operator of a job of weeks sets: patience with a failure that comes back at once, launchers that exit with 1
for everything, and machines that may be replaced."""


def timings(conditions: Conditions, level: int) -> FleetTimings:
    """The conditions as the virtual world takes them."""
    return FleetTimings(
        start_s=conditions.start_s,
        leave_s=conditions.leave_s,
        down_s=SHUTS_DOWN_S,
        boot_s=conditions.reboot_s - SHUTS_DOWN_S,
        launch_s=conditions.replace_s,
        check_s=conditions.check_s(level),
    )


def costs(conditions: Conditions) -> Costs:
    """The conditions as the virtual AWS takes them."""
    ecs = Limit(round(conditions.calls_burst), conditions.calls_per_s)
    return Costs(ecs=ecs, call_s=conditions.call_s, store_s=conditions.store_s)


class ProductObserver:
    """Sees when the product notices a failure, and what it does to machines."""

    def __init__(self) -> None:
        self.trainer: Trainer
        self.reboots: list[InstanceReboot] = []
        self.replacements = 0

    def before(self, step: Effect) -> None:
        """The first thing that the product writes after a failure shows is its notice of it."""
        broken = self.trainer.broken
        if broken is not None and broken.detected_at is None and step.name == "store.save_job":
            now = self.trainer.elapsed()
            if now >= broken.shown_at:
                broken.detected_at = now
        if step.name == "RebootInstances":
            needed = self.trainer.needs_reboot(step.given["instance"])
            self.reboots.append(InstanceReboot(self.trainer.elapsed(), needed))

    def after(self, step: Effect) -> None:
        """Replacements, once they are accepted."""
        self.replacements += step.name == "TerminateInstanceInAutoScalingGroup"


@dataclass(frozen=True)
class Production:
    """gpu-recovery under one of its presets, with what an operator would set on top of it."""

    name: str
    preset: Preset
    level: int = 2
    spares: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_slow(self) -> bool:
        """Every event of every rank goes through the product's own code."""
        return True

    @property
    def about(self) -> str:
        """Its rules in a sentence."""
        changed = ", ".join(f"{name} {value}" for name, value in self.settings.items()) or "nothing changed"
        return (
            f"the production loop in the virtual world: preset {self.preset}, {changed}; "
            f"checks of level {self.level}, {self.spares} spare"
        )

    def policy(self) -> RecoveryPolicy:
        """The policy that it runs under."""
        return replace(PRESETS[self.preset], **self.settings)

    def run(self, course: FailureTrace) -> PolicyRun:
        """Go through the course."""
        conditions, profile = course.conditions, course.profile
        witness = ProductObserver()
        world = World(
            instances=profile.instances + self.spares,
            gpus=profile.gpus,
            policy=self.policy(),
            delivery=lambda envelope: (conditions.event_s,),
            timings=timings(conditions, self.level),
            costs=costs(conditions),
            nemesis=witness,
            fidelity=LARGE,
            diagnose=self.policy().diagnose,
            seed=f"goodput/{profile.name}/{course.seed}",
        )
        people = Operators(world, course)
        trainer = Trainer(world, course, self.level, people.came_back)
        witness.trainer = people.trainer = trainer
        for machine in world.model_instances():
            machine.tags[GROUP_TAG] = GROUP
        world.actions.on_message = people.on_message
        world.submit(profile.instances, profile.gpus)
        self._pass(world, trainer, course.ends_s - course.begins_s)
        last = trainer.unfinished()
        return PolicyRun(
            (*trainer.episodes, *(() if last is None else (last,))),
            tuple(witness.reboots),
            witness.replacements,
            people.mails,
            people.called,
            trainer.unfelt,
            self.spares,
        )

    def _pass(self, world: World, trainer: Trainer, seconds: float) -> None:
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


def adaptive(level: int, spares: int) -> Production:
    """The product as it is meant to be used for a job of weeks."""
    name = f"adaptive, {spares} spares" if spares else "adaptive"
    return Production(name, Preset.ADAPTIVE, level, spares, FOR_MONTHS)


def seed_001(level: int) -> Production:
    """The first generation: one retry on the same instances, after exit code 1 and a failed check."""
    return Production("seed 001", Preset.CLASSIC, level)
