"""Policies that the simulation compares, and the record of a run: interruptions (episodes), reboots, counts.

A policy is a small model (`baselines`, `contenders`) or the production loop in the virtual world (`production`). The
same accounting computes the figures of both, from the same kind of episodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from simulator.goodput.assumptions import Cure
from simulator.goodput.failure_trace import FailureTrace

REPEATS_MAX = 2
"""Upper bound of the returns of a failure, under any policy, before an operator looks for its cause."""


@dataclass(frozen=True, slots=True)
class Episode:
    """One interruption of the training, as it was in the simulated world.

    Times are seconds since the run began, in this order.

    fault_at:    the training stopped, whether or not the policy knew
    shown_at:    the fault became visible: a rank or a host ended
    detected_at: the policy detected the fault; before `shown_at` if the policy monitors the instances
    stopped_at:  every rank had ended
    checked_at:  every check had a result; equals `stopped_at` without checks
    placed_at:   enough instances that the policy takes for healthy were available
    started_at:  every process of the new attempt ran
    training_at: the next step began; None if the run ended before
    failure:     number of the failure in the trace; None if the policy itself caused the interruption
    waited_for:  cures that the policy waited for, apart from checks: the repair of an instance, an operator; often none
    was_short:   whether fewer healthy instances existed than the gang has when it could have restarted; then no policy
                 could have continued without a repair
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
    """One reboot of an instance at `at_s`. `needed` is whether the instance had a fault that a reboot cures."""

    at_s: float
    needed: bool


@dataclass(frozen=True, slots=True)
class PolicyRun:
    """Result of a policy on a failure trace.

    episodes:     interruptions, in order of time
    reboots:      reboots of instances
    replacements: number of replaced instances
    messages:     notifications that operators received
    called:       how often an operator had to act before the job continued
    unnoticed:    failures of the trace that interrupted nothing: no program ran, or the instance had left
    spares:       instances that the policy needs beyond those of the gang
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
        """Name of the policy in the report."""

    @property
    def about(self) -> str:
        """Rules of the policy in one sentence, and whether it is a model or the production loop."""

    @property
    def level(self) -> int | None:
        """Level of the checks of all instances before a relaunch; None for a policy without checks."""

    @property
    def is_slow(self) -> bool:
        """Whether a run takes so long that it is worth cutting the trace into segments."""

    @property
    def memory_checkpoints(self) -> bool:
        """Whether the trainer saves its state in the memory of the instances; else as the conditions say."""

    def run(self, trace: FailureTrace) -> PolicyRun:
        """Go through the failure trace."""
