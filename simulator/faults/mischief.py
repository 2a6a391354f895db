"""Everything at once, as one seed has it: deaths between steps, work that overlaps, answers that are lost."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime, timedelta

from gpu_recovery.ports import OutcomeUnknown
from gpu_recovery.reconcile import reconcile
from gpu_recovery.scheduling import schedule

from ..lives import Killed, Step
from ..world import World


class Mischief:
    """A nemesis for one world, until `quiet_s` of virtual time have passed: then faults stop, and all must end well.

    killed:  the chance that an invocation dies at a step, before or after it.
    overlap: the chance that a reconciler round or a scheduler pass comes in between two steps.
    unknown: the chance that the answer to RebootInstances is lost.
    """

    def __init__(
        self, seed: int, *, killed: float = 0.02, overlap: float = 0.03, unknown: float = 0.3, quiet_s: float = 1800
    ) -> None:
        self.random = random.Random(f"mischief {seed}")
        self.killed, self.overlap, self.unknown, self.quiet_s = killed, overlap, unknown, quiet_s
        self._world: World | None = None
        self._inside = False
        self._until = datetime.max

    def begin(self, world: World) -> None:
        """From now on."""
        self._world, self._until = world, world.timeline.now + timedelta(seconds=self.quiet_s)

    def before(self, step: Step) -> None:
        world = self._awake()
        if world is None:
            return
        if not self._inside and self.random.random() < self.overlap:
            self._inside = True
            work: Callable[..., object] = self.random.choice((schedule, reconcile))
            world.invoke("overlapping", lambda: work(world.recovery), tried=2)
            self._inside = False
        self._perhaps_kill()

    def after(self, step: Step) -> None:
        if self._awake() is None:
            return
        if step.name == "RebootInstances" and self.random.random() < self.unknown:
            raise OutcomeUnknown("the answer was lost")
        self._perhaps_kill()

    def _awake(self) -> World | None:
        world = self._world
        return world if world is not None and world.timeline.now < self._until else None

    def _perhaps_kill(self) -> None:
        if self.random.random() < self.killed / 2:
            raise Killed
