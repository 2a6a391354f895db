"""What goes wrong at a time of its own, in virtual seconds: the kinds are in `machines`, `notices`, `people` and here.

A fault names machines by their numbers (`gpu-0` is 0) and jobs by the order of their submission; a number that is too
large wraps around, and a job that does not run at that time is spared. Each is a value that a scenario file can hold.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar

from sandbox.cluster.model.records import ModelInstance
from sandbox.cluster.model.statuses import Ec2State

if TYPE_CHECKING:
    from simulator.world import World


@dataclass(frozen=True, kw_only=True)
class TimedFault(ABC):
    """Something that happens at `at_s`."""

    kind: ClassVar[str]
    at_s: float

    @abstractmethod
    def strike(self, world: World) -> bool:
        """Let it happen; whether there was anything for it to happen to."""


@dataclass(frozen=True, kw_only=True)
class InstanceFault(TimedFault):
    """Something that happens to `machines`, all at once: two of them fail together, or a whole rack."""

    machines: tuple[int, ...] = (0,)

    def strike(self, world: World) -> bool:
        """Let it happen to every machine that runs; whether it happened to any."""
        struck = False
        for number in dict.fromkeys(number % len(world.cluster.instances) for number in self.machines):
            machine = world.model_instance(number)
            if machine.ec2_state is Ec2State.RUNNING:
                struck = self._strike(world, machine) or struck
        return struck

    @abstractmethod
    def _strike(self, world: World, machine: ModelInstance) -> bool:
        """Let it happen to one machine, if it can; whether it did."""


@dataclass(frozen=True, kw_only=True)
class FunctionSleeps(TimedFault):
    """The clock does not wake `function` (reconciler or scheduler) for `for_s`."""

    kind = "asleep"
    function: str = "reconciler"
    for_s: float = 600

    def strike(self, world: World) -> bool:
        world.asleep[self.function] = world.timeline.now + timedelta(seconds=self.for_s)
        return True
