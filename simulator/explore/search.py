"""Breadth-first search of all reachable states: by fewest faults first, then by fewest actions.

A state has the world, the queued events of each instance, the late events, and the slow steps of instances. A state
that was reached with fewer faults is not explored again with more faults. From this state, the smaller number of used
faults allows everything that the larger number allows.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Any

from simulator.explore.action import DELIVER, INVOCATIONS, RECONCILER, STEP, TIME, Action, NextState
from simulator.explore.compact_store import Edge, Edges, Numbered, packed, unpacked
from simulator.explore.model import (
    NOTHING,
    Bounds,
    DeliveryPace,
    ExploredFault,
    ModelState,
    Move,
    Violation,
    Walk,
    step_in_words,
)
from simulator.explore.properties import PropertyViolated
from simulator.explore.reachability import backwards
from simulator.explore.small_world import Incident, SmallWorld
from simulator.explore.transition import Transitions


class Search:
    """Search of the states of a small world within bounds."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.stage = Transitions(SmallWorld(bounds.incident))
        self.walk = Walk(bounds, self.stage)
        self._lines = {instance.instance_id: n for n, instance in enumerate(self.stage.world.model_instances())}
        """Index of the queue of each instance."""
        self._beside: Numbered[tuple[Any, ...]] = Numbered()
        """Fields of the states other than `core`, by number."""
        self._moves_taken: Numbered[Move | None] = Numbered()
        """The moves by number; None for the first state."""
        self._numbers: dict[int, int] = {}
        """Number of each state, by its packed form."""
        self._reached = Edges()
        """The states by number, each with the edge by which it was reached first."""
        self._depths = array("i")
        """Number of moves to each state."""
        self._from, self._to = array("i"), array("i")
        """Start and end states of the transitions without a fault, by number."""
        self._finals = array("i")
        """Numbers of the final states."""
        self._at: tuple[int, int, Move] = (0, 0, Move(Action(RECONCILER)))
        """Present state and move: number of the state, number of its world, and the move."""

    def run(self) -> Walk:
        """Explore everything within the bounds, or up to the first violation. Return the walk."""
        try:
            self._explore()
            self._check_all_can_end()
            self.walk.is_whole = True
        except PropertyViolated as violated:
            number, core, move = self._at
            self.walk.violation = Violation(violated.sentences, [*self._path(number), (core, move)])
        return self.walk

    def _explore(self) -> None:
        first = ModelState(self.stage.begin(), ((),) * len(self._lines))
        level = Edges()
        level.append(Edge(self._packed(first), -1, self._moves_taken.number(None)))
        for faults in range(self.bounds.faults + 1):
            before, after = len(self._reached), Edges()
            for edge in level:
                self._reach(edge)
            number = before
            while number < len(self._reached):
                state = self._state(number)
                if self._is_final(state):
                    self._end(number, state)
                else:
                    self._expand(number, state, after if faults < self.bounds.faults else None)
                number += 1
            self.walk.states_by_faults.append(len(self._reached) - before)
            level = after

    def _packed(self, state: ModelState) -> int:
        return packed(state.core, self._beside.number(state[1:]))

    def _state(self, number: int) -> ModelState:
        core, beside = unpacked(self._reached[number].state)
        return ModelState(core, *self._beside.values[beside])

    def _reach(self, edge: Edge) -> int:
        number = self._numbers.get(edge.state)
        if number is None:
            number = self._numbers[edge.state] = len(self._reached)
            self._reached.append(edge)
            self._depths.append(0 if edge.parent < 0 else self._depths[edge.parent] + 1)
            self.walk.depth = max(self.walk.depth, self._depths[number])
        return number

    def _expand(self, number: int, state: ModelState, faulty: Edges | None) -> None:
        moves = self._moves_taken
        for move, after in self._following(number, state):
            self.walk.transitions += 1
            self._from.append(number)
            self._to.append(self._reach(Edge(self._packed(after), number, moves.number(move))))
        if faulty is None:
            return
        for move, after in self._going_wrong(number, state):
            self.walk.transitions += 1
            self.walk.faults_taken[str(move.fault)] += 1
            edge = Edge(self._packed(after), number, moves.number(move))
            if edge.state not in self._numbers:
                faulty.append(edge)

    # -- moves ---------------------------------------------------------------------------------------------------------

    def _enabled(self, state: ModelState) -> Iterator[Action]:
        """Yield the actions that are possible in `state` without a fault, TIME excepted."""
        yield from (Action(DELIVER, line[0]) for line in state.lines if line)
        yield from (Action(DELIVER, event) for event in dict.fromkeys(state.late))
        waits = any(state.lines) and self.bounds.pace is not DeliveryPace.FREE
        if not (waits and self.bounds.pace is DeliveryPace.ALL):
            yield from self.stage.woken(state.core)
        if not waits:
            yield from (Action(STEP, n) for n in range(len(self.stage.steps(state.core))))
            yield from self.stage.befalling(state.core)

    def _following(self, number: int, state: ModelState) -> Iterator[tuple[Move, ModelState]]:
        """Yield the moves from `state` without a fault, each with the next state."""
        with_deaths = ExploredFault.CRASH in self.bounds.kinds and self._depth_of_faults < self.bounds.faults
        for action in self._enabled(state):
            move = Move(action)
            self._at = number, state.core, move
            yield move, self._after(state, (action,), self.stage.done(state.core, action, deaths=with_deaths).after)
        if any(state.lines) or len(self.stage.steps(state.core)) > len(state.slow):
            return
        self._at = number, state.core, Move(Action(TIME))
        if self.stage.time_may_pass(state.core):
            yield Move(Action(TIME)), self._after(state, (), self.stage.done(state.core, Action(TIME)).after)

    @property
    def _counts_crashes(self) -> bool:
        return self.bounds.crashes < self.bounds.faults

    @property
    def _depth_of_faults(self) -> int:
        return len(self.walk.states_by_faults)

    def _going_wrong(self, number: int, state: ModelState) -> Iterator[tuple[Move, ModelState]]:
        """Yield the moves from `state` with a fault, each with the next state."""
        kinds = self.bounds.kinds
        for n, line in enumerate(state.lines):
            if line:
                yield from self._event_faults(number, state, n, line[0])
        for action in self._enabled(state):
            if action.name not in INVOCATIONS:
                continue
            done = self.stage.done(state.core, action)
            for death in (done.deaths or ()) if state.crashes < self.bounds.crashes else ():
                move = Move(action, ExploredFault.CRASH, death.effect)
                self._at = number, state.core, move
                after = self._after(state, (action,), death.follows)
                yield move, after._replace(crashes=state.crashes + 1) if self._counts_crashes else after
            if ExploredFault.OVERLAP in kinds:
                yield from self._overlaps(number, state, action, done.effects)
        if ExploredFault.SLOW in kinds and not any(state.lines):
            for n, step in enumerate(self.stage.steps(state.core)):
                words = step_in_words(step)
                if words not in state.slow:
                    yield (
                        Move(Action(STEP, n), ExploredFault.SLOW),
                        state._replace(slow=tuple(sorted((*state.slow, words)))),
                    )

    def _event_faults(self, number: int, state: ModelState, n: int, event: int) -> Iterator[tuple[Move, ModelState]]:
        """Yield the moves in which the first event of queue `n` is lost, late or duplicated."""
        kinds, action = self.bounds.kinds, Action(DELIVER, event)
        rest = state._replace(lines=(*state.lines[:n], state.lines[n][1:], *state.lines[n + 1 :]))
        late = tuple(sorted((*state.late, event)))
        if ExploredFault.DROP in kinds:
            yield Move(action, ExploredFault.DROP), rest
        if ExploredFault.REORDER in kinds:
            yield Move(action, ExploredFault.REORDER), rest._replace(late=late)
        if ExploredFault.DUPLICATE in kinds:
            self._at = number, state.core, Move(action, ExploredFault.DUPLICATE)
            after = self._after(state, (action,), self.stage.done(state.core, action).after)
            again = after._replace(late=tuple(sorted((*after.late, event))))
            yield Move(action, ExploredFault.DUPLICATE), self._without_old_news(again)

    def _overlaps(
        self, number: int, state: ModelState, outer: Action, effects: int
    ) -> Iterator[tuple[Move, ModelState]]:
        inners = [inner for inner in self._enabled(state) if inner != outer or inner.name not in (DELIVER, STEP)]
        for effect in range(effects):
            for inner in inners:
                move = Move(outer, ExploredFault.OVERLAP, effect, inner)
                self._at = number, state.core, move
                yield move, self._after(state, (outer, inner), self.stage.overlapped(state.core, outer, effect, inner))

    def _after(self, state: ModelState, happened: tuple[Action, ...], follows: NextState) -> ModelState:
        """Return the state after an outcome.

        Delivered events leave their queue, and emitted events join the queue of their instance.

        Args:
            state: the state before.
            happened: the actions of the move.
            follows: the next state of the world, and the emitted events.
        """
        lines, late = [list(line) for line in state.lines], list(state.late)
        for action in happened:
            if action.name == DELIVER:
                line = lines[self._lines[self.stage.events.known[action.number].line]]
                if line and line[0] == action.number:
                    line.pop(0)
                else:
                    late.remove(action.number)
        for event in follows.emitted:
            lines[self._lines[self.stage.events.known[event].line]].append(event)
        slow = state.slow
        if slow:
            pending = {step_in_words(step) for step in self.stage.steps(follows.core)}
            slow = tuple(words for words in slow if words in pending)
        after = ModelState(follows.core, tuple(map(tuple, lines)), tuple(late), slow, state.crashes)
        return self._without_old_news(after)

    def _without_old_news(self, state: ModelState) -> ModelState:
        """Return `state` without the events that are no longer news."""
        core, lines, late, slow, crashes = state
        is_news = self.stage.is_news
        if any(lines):
            lines = tuple([tuple([event for event in line if is_news(core, event)]) for line in lines])
        return ModelState(core, lines, tuple([event for event in late if is_news(core, event)]), slow, crashes)

    # -- final states --------------------------------------------------------------------------------------------------

    def _is_final(self, state: ModelState) -> bool:
        return bool(self.stage.finals[state.core]) and not any(state.lines) and not state.late

    def _must_succeed(self, core: int) -> bool:
        """Whether the job must have succeeded in the final state `core`, after all faults within the bounds."""
        if ExploredFault.SLOW in self.bounds.kinds:
            return False
        return self.bounds.incident is not Incident.EXIT or not self.stage.has_struck(core)

    def _end(self, number: int, state: ModelState) -> None:
        self._finals.append(number)
        self.walk.ends[self.stage.ending(state.core)] += 1
        sentences = self.stage.unsettled(state.core, must_succeed=self._must_succeed(state.core))
        if sentences:
            self._at = number, state.core, NOTHING
            raise PropertyViolated(sentences)

    def _check_all_can_end(self) -> None:
        """Check that from every state a final state can be reached without a further fault.

        Raises:
            PropertyViolated: there is a state without a path to a final state.
        """
        reached = backwards(len(self._reached), self._from, self._to, self._finals)
        stuck = next((n for n, is_reached in enumerate(reached) if not is_reached), None)
        if stuck is not None:
            state = self._state(stuck)
            self._at = stuck, state.core, NOTHING
            raise PropertyViolated([f"I2: no final state can be reached from here: {self.stage.ending(state.core)}"])

    def _path(self, number: int) -> list[tuple[int, Move]]:
        """Return the moves of the first path to state `number`, each with the number of the world before the move."""
        path: list[tuple[int, Move]] = []
        while number > 0:
            edge = self._reached[number]
            move = self._moves_taken.values[edge.move]
            if move is not None:
                path.append((self._state(edge.parent).core, move))
            number = edge.parent
        return path[::-1]
