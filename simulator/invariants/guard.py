"""Checks the invariants while a world runs, and raises InvariantBroken at the first that does not hold."""

from __future__ import annotations

from datetime import datetime

from simulator.fast.fidelity import Checking, Fidelity
from simulator.invariants import fairness, records
from simulator.invariants.checker import FullChecker, IncrementalChecker
from simulator.invocations import Effect, Nemesis
from simulator.memory_store.store import MemoryStore
from simulator.world_view import WorldView

TAKES_DOWN = ("RebootInstances", "StopInstances", "TerminateInstanceInAutoScalingGroup")
"""The effects that end what runs on a machine."""


class Guard:
    """Checks the invariants of `world` as often as `fidelity` says."""

    def __init__(self, world: WorldView, fidelity: Fidelity) -> None:
        self.world, self.fidelity = world, fidelity
        self._checker: FullChecker | IncrementalChecker | None = None
        self._checked = (-1, -1, -1)
        """What was counted of the world when the invariants were checked last."""

    def after_step(self) -> None:
        """Check what holds after each step of the clock, unless nothing was written and no machine moved."""
        if self.world.transcript.broken:
            self._raise(self.world.transcript.broken)
        if self.fidelity.checking is Checking.NEVER:
            return
        state = (self.world.invocations.taken, len(self.world.invocations.done), self.world.fleet.changes)
        if state == self._checked:
            return
        self._checked = state
        if self._checker is None:
            self._checker = self._begin()
        self._raise(list(self._checker.broken()))

    def _begin(self) -> FullChecker | IncrementalChecker:
        checking, store = self.fidelity.checking, self.world.store
        if checking is Checking.EVERYTHING or not isinstance(store, MemoryStore):
            return FullChecker(self.world)
        return IncrementalChecker(self.world, store, checking, self.fidelity.everything_every)

    def before_pass(self) -> None:
        """Check that the pass of the scheduler that begins now lets no job overtake another."""
        if self.fidelity.checking is not Checking.NEVER:
            self._raise(list(fairness.overtaken(self.world.recovery, self.world.store)))

    def before_effect(self, step: Effect) -> None:
        """Check that an effect of the product takes no machine down under a rank."""
        if step.name in TAKES_DOWN:
            # Kept as well as raised: the product collects what its pieces of work raise, and goes on.
            self.world.transcript.broken += records.rebooted(self.world, step.given["instance"])
            self._raise(self.world.transcript.broken)

    def goes_down(self, instance_id: str, ordered_at: datetime) -> None:
        """Check that nothing was begun on the machine since it was ordered to go down; `after_step` raises."""
        self.world.transcript.broken += records.cut_off(self.world, instance_id, ordered_at)

    def at_the_end(self) -> None:
        """Check what must hold when nothing more is to come."""
        self._raise([*records.unannounced_failures(self.world), *records.left_behind(self.world)])

    def _raise(self, found: list[str]) -> None:
        if found:
            raise records.InvariantBroken("\n".join([*found, "", self.world.transcript.text()]))


class TestNemesis:
    """A nemesis with the guard beside it: the guard is asked of each effect after `nemesis`."""

    def __init__(self, guard: Guard, nemesis: Nemesis) -> None:
        self.guard, self.nemesis = guard, nemesis

    def before(self, step: Effect) -> None:
        self.nemesis.before(step)
        self.guard.before_effect(step)
        self.guard.world.transcript.ordered(step)

    def after(self, step: Effect) -> None:
        self.nemesis.after(step)
