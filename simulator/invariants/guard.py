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
"""The effects that end the processes on an instance."""


class Guard:
    """Checks the invariants of `world` as often as `fidelity` says."""

    def __init__(self, world: WorldView, fidelity: Fidelity) -> None:
        self.world, self.fidelity = world, fidelity
        self._checker: FullChecker | IncrementalChecker | None = None
        self._checked = (-1, -1, -1)
        """The counters of effects and changes at the last check."""

    def after_step(self) -> None:
        """Check the invariants, unless the step wrote nothing and changed no instance.

        Raises:
            InvariantBroken: An invariant does not hold.
        """
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
        """Check that the pass of the scheduler that begins now lets no job overtake another.

        Raises:
            InvariantBroken: A job would overtake another.
        """
        if self.fidelity.checking is not Checking.NEVER:
            self._raise(list(fairness.overtaken(self.world.recovery, self.world.store)))

    def before_effect(self, step: Effect) -> None:
        """Check that an effect of the product ends no rank by taking its instance down.

        Raises:
            InvariantBroken: The effect would end a rank.
        """
        if step.name in TAKES_DOWN:
            # Recorded as well as raised, because the product collects the exceptions of its work items and continues.
            self.world.transcript.broken += records.rebooted(self.world, step.given["instance"])
            self._raise(self.world.transcript.broken)

    def goes_down(self, instance_id: str, ordered_at: datetime) -> None:
        """Check that no rank began on the instance since it was ordered to go down; `after_step` raises."""
        self.world.transcript.broken += records.cut_off(self.world, instance_id, ordered_at)

    def at_the_end(self) -> None:
        """Check what must hold at the end of the run.

        Raises:
            InvariantBroken: It does not hold.
        """
        self._raise([*records.unannounced_failures(self.world), *records.left_behind(self.world)])

    def _raise(self, sentences: list[str]) -> None:
        if sentences:
            raise records.InvariantBroken("\n".join([*sentences, "", self.world.transcript.text()]))


class TestNemesis:
    """A nemesis that calls `nemesis` first and then lets the guard check the effect."""

    def __init__(self, guard: Guard, nemesis: Nemesis) -> None:
        self.guard, self.nemesis = guard, nemesis

    def before(self, step: Effect) -> None:
        """Let the nemesis act, check the effect, and write its line in the transcript."""
        self.nemesis.before(step)
        self.guard.before_effect(step)
        self.guard.world.transcript.ordered(step)

    def after(self, step: Effect) -> None:
        """Let the nemesis act."""
        self.nemesis.after(step)
