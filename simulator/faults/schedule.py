"""Scheduled faults: faults that strike at a virtual time of their own.

The kinds are in `instances`, `aws_notifications`, `training_reports`, `operators` and here. A fault names instances by
number (`gpu-0` is 0) and jobs by the order of their submission. A number that is too large wraps around. A job that
does not run at the time is skipped. Each fault is a value that a scenario file can contain.
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
    """A fault that strikes at `at_s`, in virtual seconds from the start."""

    kind: ClassVar[str]
    at_s: float

    @abstractmethod
    def strike(self, world: World) -> bool:
        """Carry out the fault; return False if it applies to nothing in the present state."""


@dataclass(frozen=True, kw_only=True)
class InstanceFault(TimedFault):
    """A fault that strikes `machines` at once: one instance, two instances together, or a whole rack.

    through: also every instance after the last of `machines` through this number; None: no further instance.
    """

    machines: tuple[int, ...] = (0,)
    through: int | None = None

    def strike(self, world: World) -> bool:
        """Carry out the fault on every listed instance that runs; return whether it applied to any of them."""
        struck = False
        numbers = [*self.machines, *range(self.machines[-1] + 1, (self.through or 0) + 1)]
        for number in dict.fromkeys(number % len(world.cluster.instances) for number in numbers):
            instance = world.model_instance(number)
            if instance.ec2_state is Ec2State.RUNNING:
                struck = self._strike(world, instance) or struck
        return struck

    @abstractmethod
    def _strike(self, world: World, instance: ModelInstance) -> bool:
        """Carry out the fault on one instance; return whether it applied."""


@dataclass(frozen=True, kw_only=True)
class FunctionSleeps(TimedFault):
    """The clock does not trigger `function` (reconciler or scheduler) for `for_s` seconds."""

    kind = "asleep"
    function: str = "reconciler"
    for_s: float = 600

    def strike(self, world: World) -> bool:
        """Stop the triggers of the function."""
        world.asleep[self.function] = world.timeline.now + timedelta(seconds=self.for_s)
        return True
