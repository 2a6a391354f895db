"""Action and outcome of a transition of the explorer, and the table that saves outcomes in few bytes.

An action is the delivery of an event, a scheduler pass, a reconcile cycle, a step of an instance, an incident or the
passing of time. Its outcome is the next state, the emitted events, and the states after a kill of the invocation.
"""

from __future__ import annotations

from array import array
from typing import NamedTuple

from simulator.explore.compact_store import Numbered, PackedRows

DELIVER, STEP, SCHEDULER, RECONCILER, TIME = "deliver", "step", "scheduler", "reconciler", "time"
"""Names of actions. Every other name is a method of `SmallWorld`: an incident, a recovery from it, or the end."""
INVOCATIONS = (DELIVER, SCHEDULER, RECONCILER)
"""Actions that are an invocation of a Lambda function, so that a kill or an overlap is possible."""
_BITS = 16
"""Bits for the number of an action in a key of `OutcomeTable`."""


class Action(NamedTuple):
    """What happens: DELIVER of event `number`, STEP `number` of the pending steps, or another action by its name."""

    name: str
    number: int = -1


class NextState(NamedTuple):
    """The number of the next state of the world, and the numbers of the emitted events."""

    core: int
    emitted: tuple[int, ...] = ()


class Death(NamedTuple):
    """A kill of the invocation right before its effect number `effect`, counted from 0, and the next state."""

    effect: int
    follows: NextState


class Done(NamedTuple):
    """Outcome of a transition: next state without a fault, number of effects, and possible kills.

    `deaths` is None if the kills were not computed. Kills with the same next state are one entry.
    """

    after: NextState
    effects: int
    deaths: tuple[Death, ...] | None


class OutcomeTable:
    """Outcomes by state and action, each saved as a row of numbers.

    A row has the number of effects and two numbers for the next state. Three numbers for each kill follow. The last
    number is -1 if the kills were not computed, else 0.
    """

    def __init__(self) -> None:
        self._actions: Numbered[Action] = Numbered()
        self._emitted: Numbered[tuple[int, ...]] = Numbered()
        self._rows = PackedRows()

    def get(self, core: int, action: Action, *, deaths: bool) -> Done | None:
        """Return the outcome, or None if there is no outcome, or none with kills although `deaths` asks for them."""
        row = self._rows.get(self._key(core, action))
        return None if row is None or (deaths and row[-1] < 0) else self._decoded(row)

    def put(self, core: int, action: Action, done: Done) -> None:
        """Save the outcome, in the place of a former outcome of the same state and action."""
        row = [done.effects, done.after.core, self._emitted.number(done.after.emitted)]
        for death in done.deaths or ():
            row += [death.effect, death.follows.core, self._emitted.number(death.follows.emitted)]
        self._rows.put(self._key(core, action), [*row, -1 if done.deaths is None else 0])

    def _key(self, core: int, action: Action) -> int:
        return core << _BITS | self._actions.number(action)

    def _decoded(self, row: array[int]) -> Done:
        emitted = self._emitted.values
        after, deaths = NextState(row[1], emitted[row[2]]), None
        if row[-1] >= 0:
            starts = range(3, len(row) - 1, 3)
            deaths = tuple([Death(row[n], NextState(row[n + 1], emitted[row[n + 2]])) for n in starts])
        return Done(after, row[0], deaths)
