"""The bound: no policy of the simulation loses less time, on the same failures and with the same checkpoints.

A recovery cannot be shorter than the sum of three parts: the failure becomes visible, the processes start again where
they are, and the gang trains from its last durable checkpoint. No call of AWS, no check, no repair and no decision is
included, and a machine is always available.

The ETTR of a policy depends on more than its recoveries: a failure that strikes while nothing trains may interrupt
nothing. So a slower policy can be lucky. The bound therefore knows all failures in advance. After each failure it
chooses how long to wait, so that its whole run keeps the most training. A machine that fails often fails once at most.
The proof that no run of a policy keeps more:

- each episode of a policy takes at least `shortest_s` of its failure (a test compares every episode);
- a policy that trains from one moment to its next interruption is one of the choices of the bound;
- a further interruption, by a returning fault, keeps no more: the two parts of a stretch hold no more checkpoints than
  the whole.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from simulator.goodput.accounting import trained
from simulator.goodput.assumptions import Conditions, Profile, Shows
from simulator.goodput.failure_trace import Failure, FailureTrace
from simulator.goodput.policy import Episode, PolicyRun


def shortest_s(shows: Shows | None, profile: Profile, conditions: Conditions) -> float:
    """Seconds from a fault to the next step that no policy undercuts.

    Args:
        shows: how the fault becomes visible; None for an interruption that the policy itself caused.
        profile: the gang.
        conditions: the delays.
    """
    return _shown_s(shows, conditions) + _restart_s(profile, conditions)


def _shown_s(shows: Shows | None, conditions: Conditions) -> float:
    if shows is Shows.EXIT:
        return conditions.exit_s
    if shows is Shows.HANG:  # the step that hangs must first take longer than a step
        return min(conditions.step_s, conditions.progress_s, conditions.operator_hang_s, conditions.hang_s)
    return 0.0


def _restart_s(profile: Profile, conditions: Conditions) -> float:
    rejoin_s = conditions.rejoin(profile.instances * profile.gpus)
    return min(conditions.respawn_s, conditions.start_s) + min(1.0, conditions.warm_share) * rejoin_s


def shortest_episode_s(episode: Episode, trace: FailureTrace) -> float:
    """Seconds that no policy undercuts for the recovery of this episode."""
    shows = None if episode.failure is None else trace.failures[episode.failure].shows
    return shortest_s(shows, trace.profile, trace.conditions)


@dataclass(frozen=True, slots=True)
class _Choice:
    """Best continuation after a failure: seconds kept from then on, begin of the training, and the next failure."""

    kept_s: float
    begins: float
    following: int


@dataclass(frozen=True, slots=True)
class LowerBound:
    """The bound as a row of the report.

    `memory_checkpoints` is whether it has the checkpoints in memory that a policy may have.
    """

    memory_checkpoints: bool = False

    @property
    def is_slow(self) -> bool:
        """False: a run takes milliseconds."""
        return False

    @property
    def level(self) -> None:
        """None: nothing is checked."""
        return

    @property
    def name(self) -> str:
        """Name of the bound in the report."""
        return "bound, memory checkpoints" if self.memory_checkpoints else "bound"

    @property
    def about(self) -> str:
        """What the bound is, in one sentence."""
        return (
            "a bound, not a policy: every failure is visible at the earliest moment, the processes start again in "
            "place at once, no machine is ever missing, and it knows all failures in advance"
        )

    def run(self, trace: FailureTrace) -> PolicyRun:
        """Return the best run on the failure trace."""
        felt = unavoidable(trace)
        choices = _choices(felt, trace)
        episodes, place = list[Episode](), 0
        while place < len(felt):
            episodes.append(_episode(felt[place], choices[place].begins, trace))
            place = choices[place].following
        return PolicyRun(tuple(episodes), unnoticed=len(trace.failures) - len(episodes))


def unavoidable(trace: FailureTrace) -> list[Failure]:
    """Return the failures that strike every policy: all but those of a machine that may have been left out before."""
    hit, felt = set[int](), list[Failure]()
    for failure in trace.failures:
        if not (failure.of_lemon and failure.place in hit):
            felt.append(failure)
        hit.add(failure.place)
    return felt


def _choices(felt: list[Failure], trace: FailureTrace) -> list[_Choice]:
    """Return the best continuation after each failure, computed from the last failure to the first."""
    profile, conditions, end = trace.profile, trace.conditions, trace.profile.seconds
    times = [failure.at_s for failure in felt]
    longest_s = max(shortest_s(shows, profile, conditions) for shows in Shows)
    choices = list[_Choice]()

    def kept(begins: float, following: int) -> float:
        if following == len(felt):
            return trained(max(0.0, end - begins), conditions, broken=False).kept
        stretch = trained(times[following] - begins, conditions, broken=True).kept
        return stretch + choices[len(felt) - 1 - following].kept_s

    for place in range(len(felt) - 1, -1, -1):
        ready = times[place] + shortest_s(felt[place].shows, profile, conditions)
        first = bisect_left(times, ready, place + 1)
        best = _Choice(kept(ready, first), ready, first)
        for following in range(first + 1, len(felt) + 1):
            begins = times[following - 1]  # wait until this failure has struck a gang that does not train
            if begins > times[first] + longest_s:
                break  # it could have trained until the failure at `first`, and recovered
            best = max(best, _Choice(kept(begins, following), begins, following), key=lambda choice: choice.kept_s)
        choices.append(best)
    return choices[::-1]


def _episode(failure: Failure, begins: float, trace: FailureTrace) -> Episode:
    shown = failure.at_s + _shown_s(failure.shows, trace.conditions)
    rejoin_s = _restart_s(trace.profile, trace.conditions) - min(trace.conditions.respawn_s, trace.conditions.start_s)
    started = begins - rejoin_s
    placed = started - min(trace.conditions.respawn_s, trace.conditions.start_s)
    in_time = begins < trace.profile.seconds
    return Episode(
        failure.number,
        failure.cause,
        failure.at_s,
        shown,
        shown,
        shown,
        shown,
        max(shown, placed),
        max(shown, started),
        begins if in_time else None,
    )
