"""The product itself as a contender: its own loop, parsers, scheduler and reconciler in the virtual world.

People take part as they do: they read the mails. Who gets one that says that a job has failed, or that an instance
needs a person, comes, puts right what is wrong and goes on; so they do when a failure has come back often enough.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from gpu_recovery.core.commands import Channel, NotifyOperator
from gpu_recovery.core.policy import PRESETS, Preset, RecoveryPolicy

from sandbox.cluster.model_watchers import GROUP_TAG

from ..cloud.fleet import Timings
from ..cloud.throttle import Costs
from ..economy import LARGE, rare_collections
from ..lives import Step
from ..world import World
from .contender import Reboot, Run
from .facts import Conditions
from .floor import REPEATS_MAX
from .trace import Course, Failure
from .trainer import Trainer

GROUP = "training"
SHUTS_DOWN_S = 15.0
"""Of a reboot, until the machine is off; the rest of `reboot_s` is its boot."""
BEGINS_WITHIN_S = 6 * 3_600.0
FOR_MONTHS: Mapping[str, Any] = {
    "attempts_max": 10, "retry_exits": True, "replace": True,
}  # fmt: skip
"""What an operator of a job of weeks sets: patience with a failure that comes back at once, launchers that exit with 1
for everything, and machines that may be replaced."""


def timings(conditions: Conditions, level: int) -> Timings:
    """The conditions as the virtual world takes them."""
    return Timings(
        start_s=conditions.start_s, leave_s=conditions.leave_s, down_s=SHUTS_DOWN_S,
        boot_s=conditions.reboot_s - SHUTS_DOWN_S, launch_s=conditions.replace_s, check_s=conditions.check_s(level),
    )  # fmt: skip


class Witness:
    """Sees each effect of the product, and what people are told."""

    def __init__(self) -> None:
        self.trainer: Trainer
        self.reboots: list[Reboot] = []
        self.replacements = 0

    def before(self, step: Step) -> None:
        """The first thing that the product writes after a failure shows is its notice of it."""
        broken = self.trainer.broken
        if broken is not None and broken.detected_at is None and step.name == "store.save_job":
            now = self.trainer.elapsed()
            if now >= broken.shown_at:
                broken.detected_at = now
        if step.name == "RebootInstances":
            needed = self.trainer.needs_reboot(step.given["instance"])
            self.reboots.append(Reboot(self.trainer.elapsed(), needed))

    def after(self, step: Step) -> None:
        """Replacements, once they are accepted."""
        self.replacements += step.name == "TerminateInstanceInAutoScalingGroup"


@dataclass
class People:
    """Those who read the mails of one run."""

    world: World
    course: Course
    trainer: Trainer = field(init=False)
    mails: int = 0
    called: int = 0
    _asked: set[int] = field(default_factory=set)

    def told(self, message: NotifyOperator) -> None:
        """A message went out."""
        if message.channel is not Channel.MAIL:
            return
        self.mails += 1
        if "FAILED on attempt" in message.subject:
            self._come(self._takes(), self._submit)
        elif "quarantined, needs a person" in message.subject:
            self._come(self._takes(), self._release, message.instance_id)

    def came_back(self, failure: Failure, times: int) -> None:
        """The same failure for the `times`th time: at last somebody looks into it."""
        if times > REPEATS_MAX and failure.number not in self._asked:
            self._asked.add(failure.number)
            self._come(failure.human_s, self._mend, failure.number)

    def _takes(self) -> float:
        broken = self.trainer.broken
        return broken.failure.human_s if broken is not None else self.course.conditions.human_s

    def _come(self, seconds: float, do: Any, *given: Any) -> None:
        self.called += 1
        self.world.timeline.after(seconds, do, *given)

    def _mend(self, number: int) -> None:
        self._asked.discard(number)
        self.trainer.mend(self.course.failures[number])

    def _release(self, instance_id: str) -> None:
        machine = self.world.cluster.instances[instance_id]
        self.trainer.mend_machine(machine)
        self.world.release(machine)

    def _submit(self) -> None:
        if (broken := self.trainer.broken) is not None:
            broken.by_person = True
            self.trainer.mend(broken.failure)
        self.world.submit(self.course.profile.instances, self.course.profile.gpus)


@dataclass(frozen=True)
class Production:
    """gpu-recovery under one of its presets, with what an operator would set on top of it."""

    name: str
    preset: Preset
    level: int = 2
    spares: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict)

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

    def run(self, course: Course) -> Run:
        """Go through the course."""
        conditions, profile = course.conditions, course.profile
        witness = Witness()
        world = World(
            instances=profile.instances + self.spares, gpus=profile.gpus, policy=self.policy(),
            delivery=lambda envelope: (conditions.event_s,), timings=timings(conditions, self.level),
            costs=Costs(call_s=conditions.call_s, store_s=conditions.store_s), nemesis=witness, economy=LARGE,
            seed=f"goodput/{profile.name}/{course.seed}",
        )  # fmt: skip
        people = People(world, course)
        trainer = Trainer(world, course, self.level, people.came_back)
        witness.trainer = people.trainer = trainer
        for machine in world.machines():
            machine.tags[GROUP_TAG] = GROUP
        world.actions.told = people.told
        world.submit(profile.instances, profile.gpus)
        with rare_collections():
            self._pass(world, trainer, profile.seconds)
        last = trainer.unfinished()
        return Run(
            (*trainer.episodes, *(() if last is None else (last,))), tuple(witness.reboots), witness.replacements,
            people.mails, people.called, trainer.unfelt, self.spares,
        )  # fmt: skip

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
