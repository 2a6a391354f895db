"""What every policy that is compared must be able to do: go through a course, and say what became of each failure.

A contender may be a small model (`others`, `floor`) or the production loop in the virtual world. Both are judged by the
same account, from the same kind of episodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from simulator.goodput.assumptions import Cure
from simulator.goodput.failure_trace import FailureTrace

REPEATS_MAX = 2
"""How often a failure may come back, whatever the policy, before a person is asked to look into it."""


@dataclass(frozen=True, slots=True)
class Episode:
    """One interruption of the training, as it really was. Times are seconds since the run began, in this order.

    fault_at:    the training stopped, though nobody may know
    shown_at:    something could be seen: a rank or a host ended
    detected_at: the policy knew; before `shown_at` if it watches the machines
    stopped_at:  every rank had ended
    checked_at:  every result was in; as stopped_at where nothing is checked
    placed_at:   enough machines that it takes for healthy were there
    started_at:  every process of the new attempt ran
    training_at: the next step was taken; None: not before the run was over
    failure:     its number in the course; None: the policy's own doing
    waited_for:  what else it did not go on without: the repair of a machine, a person's answer; often nothing
    was_short:   whether there were fewer healthy machines than the gang has when it could have begun again, so that
                 nobody could have gone on without a repair
    """

    failure: int | None
    cause: str
    fault_at: float
    shown_at: float
    detected_at: float
    stopped_at: float
    checked_at: float
    placed_at: float
    started_at: float
    training_at: float | None
    waited_for: frozenset[Cure] = frozenset()
    is_relapse: bool = False
    was_short: bool = False


@dataclass(frozen=True, slots=True)
class InstanceReboot:
    """One instance rebooted at `at_s`; it was needless unless it had a fault that a reboot cures."""

    at_s: float
    needed: bool


@dataclass(frozen=True, slots=True)
class PolicyRun:
    """What a contender made of a course.

    spares:   machines that it needs beyond those of the gang
    unfelt:   failures of the course that met nothing: no program ran, or the machine had left
    messages: what people were sent
    called:   how often a person had to do something before the job went on
    """

    episodes: tuple[Episode, ...]
    reboots: tuple[InstanceReboot, ...] = ()
    replacements: int = 0
    messages: int = 0
    called: int = 0
    unnoticed: int = 0
    spares: int = 0


class Policy(Protocol):
    """A policy that can be compared."""

    @property
    def name(self) -> str:
        """What the report calls it."""

    @property
    def about(self) -> str:
        """Its rules in a sentence, and whether it is a model or the production loop."""

    @property
    def level(self) -> int | None:
        """The level at which it checks every machine before a relaunch; None: it does not."""

    @property
    def is_slow(self) -> bool:
        """Whether a course is worth going through in legs."""

    def run(self, course: FailureTrace) -> PolicyRun:
        """Go through the course."""
