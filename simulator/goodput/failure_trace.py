"""What fails in a run: the same list for every policy, from a profile and one integer.

Each failure brings everything about itself that is left to chance: where it is, what would cure it, what a check says
of it, how long a person would take. So no policy draws luck of its own: two policies differ by what they do alone.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from simulator.goodput.assumptions import CauseOfFailure, Conditions, Cure, Profile, Shows

LEMONS_LEAST = 1


@dataclass(frozen=True, slots=True)
class Failure:
    """One failure of one machine of the gang.

    at_s:      seconds since the run began, by the wall clock
    place:     which machine of the gang it hits, from 0; whichever machine that is by then
    of_lemon:  it belongs to the machine that was at `place` at the beginning, and only that machine has it
    depth:     a check of a level that sees the share p of all faults sees it if depth < p; 1 and more: none ever does
    verdict:   what a check that sees it says: REBOOT, or REPLACE at first sight
    relapse_s: how long a gang with this machine, uncured, trains before it fails again
    human_s:   how long a person who must look into it takes
    accused:   healthy places that a check of the whole gang blames along the way
    told:      the rank's log names the machine if told < the share of those that do; 1 and more: none ever does
    """

    number: int
    at_s: float
    place: int
    cause: str
    cure: Cure
    shows: Shows
    of_lemon: bool
    depth: float
    verdict: Cure
    relapse_s: float
    human_s: float
    accused: tuple[int, ...]
    named_draw: float

    @property
    def of_machine(self) -> bool:
        """Whether it stays with the machine until that is rebooted or replaced."""
        return self.cure in (Cure.REBOOT, Cure.REPLACE)

    def is_seen(self, conditions: Conditions, level: int) -> bool:
        """Whether a check of this level finds the machine."""
        return self.of_machine and self.depth < conditions.seen(level)

    def is_named_in_log(self, conditions: Conditions) -> bool:
        """Whether the rank that ends first says in its log what its machine has."""
        return self.of_machine and self.shows is Shows.EXIT and self.named_draw < conditions.told_share


@dataclass(frozen=True, slots=True)
class FailureTrace:
    """One run that every contender goes through, or a `leg` of it: from when to when of the whole run, in seconds.

    Times are seconds since the whole run began, also in a leg; the failures are those of the whole run, by number.
    """

    profile: Profile
    conditions: Conditions
    failures: tuple[Failure, ...]
    seed: int
    segment: tuple[float, float] | None = None

    @property
    def begins_s(self) -> float:
        """When it begins."""
        return self.segment[0] if self.segment is not None else 0.0

    @property
    def ends_s(self) -> float:
        """When it is over."""
        return self.segment[1] if self.segment is not None else self.profile.seconds


def failure_trace(profile: Profile, conditions: Conditions, seed: int) -> FailureTrace:
    """The failures of a run, in order of time.

    Their number is the expected one and their times are uniform: a Poisson process, given how often it struck. Causes
    come in the proportions of the mix as exactly as their number allows, in random order; each has a chance in
    proportion to its weight where there are fewer failures than causes.
    """
    draw = random.Random(f"{seed}/{profile.name}/course")
    number = round(profile.failures_per_s * profile.seconds)
    times = sorted(draw.uniform(0, profile.seconds) for _ in range(number))
    causes = _apportioned(profile.mix, number, draw.random())
    draw.shuffle(causes)
    lemons = _lemons(profile, conditions, draw)
    failures = tuple(
        _failure(i, at_s, cause, profile, conditions, lemons, seed)
        for i, (at_s, cause) in enumerate(zip(times, causes, strict=True))
    )
    return FailureTrace(profile, conditions, failures, seed)


def _apportioned(mix: Sequence[CauseOfFailure], number: int, offset: float) -> list[CauseOfFailure]:
    """`number` causes at evenly spaced points of their summed weights, all shifted by `offset` of a space."""
    total, found, passed = sum(cause.weight for cause in mix), list[CauseOfFailure](), 0.0
    for cause in mix:
        passed += cause.weight
        while len(found) < number and (len(found) + offset) * total < passed * number:
            found.append(cause)
    return found + [mix[-1]] * (number - len(found))  # rounding may leave the last point over


def _lemons(profile: Profile, conditions: Conditions, draw: random.Random) -> list[int]:
    number = max(LEMONS_LEAST, round(conditions.lemon_share * profile.instances))
    return draw.sample(range(profile.instances), min(number, profile.instances))


def _failure(
    number: int,
    at_s: float,
    cause: CauseOfFailure,
    profile: Profile,
    conditions: Conditions,
    lemons: list[int],
    seed: int,
) -> Failure:
    draw = random.Random(f"{seed}/{profile.name}/{number}")
    # Every draw is made whether it is needed or not, so that a changed condition changes nothing but what it is about.
    cured, hangs, depth, verdict, lemon, place, lemon_place = (draw.random() for _ in range(7))
    relapse, human, accused, told = draw.expovariate(1.0), draw.gauss(0, 1), draw.random(), draw.random()
    cure, shows = _cure(cause, cured < conditions.reboot_share), _shows(cause, hangs < conditions.hang_share)
    of_lemon = cause.cure == "node" and lemon < _share_of_lemons(conditions)
    at = lemons[int(lemon_place * len(lemons))] if of_lemon else int(place * profile.instances)
    first_sight = cure is Cure.REPLACE and verdict < conditions.verdict_share
    return Failure(
        number,
        at_s,
        at,
        cause.name,
        cure,
        shows,
        of_lemon,
        depth=depth if cause.seen else 1.0,
        verdict=Cure.REPLACE if first_sight else Cure.REBOOT,
        relapse_s=relapse * conditions.relapse_s,
        human_s=conditions.human_s * math.exp(human * conditions.human_spread),
        accused=_accused(profile.instances, conditions.false_alarm, accused, at),
        named_draw=told if cause.seen else 1.0,
    )


def _cure(cause: CauseOfFailure, by_reboot: bool) -> Cure:
    if cause.cure == "node":
        return Cure.REBOOT if by_reboot else Cure.REPLACE
    return {"restart": Cure.RESTART, "person": Cure.PERSON, "gone": Cure.REPLACE}[cause.cure]


def _shows(cause: CauseOfFailure, hangs: bool) -> Shows:
    if cause.shows == "either":
        return Shows.HANG if hangs else Shows.EXIT
    return Shows(cause.shows)


def _share_of_lemons(conditions: Conditions) -> float:
    """Of all failures of nodes, those that a few bad machines have, at the rate of the whole fleet."""
    theirs = conditions.lemon_share * conditions.lemon_factor
    return theirs / (theirs + 1 - conditions.lemon_share)


def _accused(instances: int, chance: float, drawn: float, sick: int) -> tuple[int, ...]:
    """Healthy places that a check of every instance blames: a Poisson number of them, from one draw, evenly apart."""
    term = math.exp(-instances * chance)
    number, passed = 0, term
    while passed < drawn and number < instances - 1 and term > 0:
        number += 1
        term *= instances * chance / number
        passed += term
    apart = max(1, instances // (number + 1))
    return tuple((sick + (i + 1) * apart) % instances for i in range(number))
