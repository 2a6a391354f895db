"""Model of the exploration: bounds, states, moves, violations and the result of a walk."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from simulator.explore.action import Action
from simulator.explore.interning import WorkStep
from simulator.explore.small_world import Incident
from simulator.explore.transition import Transitions


class ExploredFault(StrEnum):
    """Kind of a fault that the explorer injects."""

    DROP = "drop"
    DUPLICATE = "duplicate"
    REORDER = "reorder"
    CRASH = "crash"
    OVERLAP = "overlap"
    SLOW = "slow"


class DeliveryPace(StrEnum):
    """Actors that wait until no event is in flight, late events excepted."""

    FREE = "free"
    MACHINES = "machines"
    ALL = "all"


@dataclass(frozen=True)
class Bounds:
    """Bounds of a walk.

    Attributes:
        incident: the incident that may happen to the gang.
        faults: upper bound of the faults in a run.
        kinds: kinds of faults that are injected.
        pace: actors that wait for events in flight.
        crashes: upper bound of the crashes among the faults.
    """

    incident: Incident = Incident.GPU
    faults: int = 1
    kinds: frozenset[ExploredFault] = frozenset(ExploredFault)
    pace: DeliveryPace = DeliveryPace.MACHINES
    crashes: int = 3


class ModelState(NamedTuple):
    """State of the model.

    Attributes:
        core: number of the state of the world.
        lines: numbers of the in-flight events of each instance, in order of emission.
        late: numbers of the late events, which may be delivered at any time.
        slow: texts of the slow steps.
        crashes: number of crashes so far, if the bounds limit the crashes below the faults; else 0.
    """

    core: int
    lines: tuple[tuple[int, ...], ...]
    late: tuple[int, ...] = ()
    slow: tuple[str, ...] = ()
    crashes: int = 0


class Move(NamedTuple):
    """Move from a state to the next.

    Attributes:
        action: the action.
        fault: the injected fault, or None.
        effect: number of the effect before which a crash or an overlap happens.
        inner: the overlapping action.
    """

    action: Action
    fault: ExploredFault | None = None
    effect: int = -1
    inner: Action | None = None


NOTHING = Move(Action(""))
"""Move without an action: the end of the path to a violation in a final state."""


@dataclass
class Violation:
    """A violated property: its sentences, and the path of moves to it, each with the state of the world before."""

    told: list[str]
    path: list[tuple[int, Move]]


@dataclass
class Walk:
    """Result of a walk.

    Attributes:
        bounds: bounds of the walk.
        stage: the transitions, with the states of the world.
        transitions: number of transitions.
        depth: largest number of moves to a state by the path found first.
        states_by_faults: number of states, by the fewest faults with which they are reached.
        faults_taken: number of transitions with a fault, by kind.
        ends: number of final states, by status of the job and of the instances.
        violation: the first violation, or None.
        is_whole: whether everything within the bounds was walked.
    """

    bounds: Bounds
    stage: Transitions
    transitions: int = 0
    depth: int = 0
    states_by_faults: list[int] = field(default_factory=list)
    faults_taken: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    violation: Violation | None = None
    is_whole: bool = False

    @property
    def states(self) -> int:
        """Number of states that were reached."""
        return sum(self.states_by_faults)


def step_in_words(step: WorkStep) -> str:
    """Return the text of a pending step: the name of its function and its arguments."""
    return f"{step[0].__qualname__} {' '.join(map(str, step[1]))}"
