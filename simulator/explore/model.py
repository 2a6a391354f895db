"""What is to be walked, what a state and a move are, and what was found on the way."""

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
    """What can go wrong, once for each fault."""

    DROP = "drop"
    DUPLICATE = "duplicate"
    REORDER = "reorder"
    CRASH = "crash"
    OVERLAP = "overlap"
    SLOW = "slow"


class DeliveryPace(StrEnum):
    """Who waits for the events that are on their way, but for those that are late."""

    FREE = "free"
    MACHINES = "machines"
    ALL = "all"


@dataclass(frozen=True)
class Bounds:
    """What is explored: which incident, how many faults, of which kinds, and who waits for events."""

    incident: Incident = Incident.GPU
    faults: int = 1
    kinds: frozenset[ExploredFault] = frozenset(ExploredFault)
    pace: DeliveryPace = DeliveryPace.MACHINES
    crashes: int = 3
    """How many of the faults may be crashes."""


class ModelState(NamedTuple):
    """The world by its number; the events of each instance, in order; the late ones; the slow steps, in words; and how
    many crashes there were, where that bounds how many may follow."""

    core: int
    lines: tuple[tuple[int, ...], ...]
    late: tuple[int, ...] = ()
    slow: tuple[str, ...] = ()
    crashes: int = 0


class Move(NamedTuple):
    """One edge: what happened, what went wrong if anything, before which effect, and what came in between."""

    action: Action
    fault: ExploredFault | None = None
    effect: int = -1
    inner: Action | None = None


NOTHING = Move(Action(""))


@dataclass
class Violation:
    """What never may be: the sentences, and the moves that lead to it, each from its state of the world."""

    told: list[str]
    path: list[tuple[int, Move]]


@dataclass
class Walk:
    """What was walked."""

    bounds: Bounds
    stage: Transitions
    transitions: int = 0
    depth: int = 0
    states_by_faults: list[int] = field(default_factory=list)
    faults_taken: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    violation: Violation | None = None
    is_whole: bool = False
    """Whether everything within the bounds was walked."""

    @property
    def states(self) -> int:
        """How many states were reached."""
        return sum(self.states_by_faults)


def step_in_words(step: WorkStep) -> str:
    """A step of a machine, by what it does and to what."""
    return f"{step[0].__qualname__} {' '.join(map(str, step[1]))}"
