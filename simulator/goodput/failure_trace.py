"""Failure trace: the failures of one run, drawn from a profile and a seed, the same for every policy.

Each failure holds all its random values: its place, its cure, what a check reports, how long an operator takes. So a
policy draws no random numbers. Two policies differ only by their actions.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from simulator.goodput.assumptions import CauseOfFailure, Conditions, Cure, Profile, Shows

LEMONS_LEAST = 1
"""Lower bound of the number of lemons of a gang."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One failure of one instance of the gang.

    number:     position in the trace, from 0
    at_s:       seconds since the run began, by the wall clock
    place:      place of the instance in the gang, from 0; the failure hits the instance that is there at `at_s`
    cause:      name of the cause in the mix
    cure:       what removes the fault
    shows:      how the fault becomes visible
    of_lemon:   whether the failure belongs to the instance that was at `place` at the beginning, and to no other
    depth:      a check level finds this fault if depth is less than the share of faults that the level finds; with a
                depth of 1 or more, no level finds the fault
    verdict:    verdict of a check that finds the fault: REBOOT, or REPLACE at once
    relapse_s:  seconds that a gang with this instance, uncured, trains before it fails again
    human_s:    seconds that an operator needs to find the cause
    accused:    places of healthy instances that the check of the whole gang finds faulty
    named_draw: the rank's log names the instance if named_draw is less than `told_share`; with 1 or more, no log names
                the instance
    until_s:    seconds since the run began at which the fault is over without a repair; None: never
    back_s:     seconds since the run began at which the instance is fit again, by the record of a fleet without new
                instances; None: the conditions say how long a replacement takes
    exit_code:  exit code of a rank that fails; 1 for any cause, as under `torchrun`
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
    until_s: float | None = None
    back_s: float | None = None
    exit_code: int = 1

    def back_at(self, at_s: float) -> float:
        """Time at which a replacement is fit for work that the conditions would give at `at_s`."""
        return at_s if self.back_s is None else self.back_s

    @property
    def is_instance_fault(self) -> bool:
        """Whether the fault stays with the instance until a reboot or a replacement."""
        return self.cure in (Cure.REBOOT, Cure.REPLACE)

    def is_seen(self, conditions: Conditions, level: int) -> bool:
        """Whether a check of this level finds the fault."""
        return self.is_instance_fault and self.depth < conditions.seen(level)

    def is_named_in_log(self, conditions: Conditions) -> bool:
        """Whether the rank that ends first writes the fault of its instance to its log."""
        return self.is_instance_fault and self.shows is Shows.EXIT and self.named_draw < conditions.told_share


@dataclass(frozen=True, slots=True)
class Incident:
    """One failure that a user has recorded: it is replayed, not drawn.

    at_s, until_s: begin and end of the fault in seconds since the run began; without an end it lasts until its cure
    place:         place of the node in the gang
    seen:          whether a health check can find the fault
    """

    at_s: float
    place: int
    cause: str
    cure: Cure
    shows: Shows
    seen: bool
    until_s: float | None = None


@dataclass(frozen=True, slots=True)
class FailureTrace:
    """The failures of one run, which every policy goes through; or a segment of that run.

    Times are seconds since the whole run began, also in a segment. A segment holds all failures of the whole run. So a
    failure keeps its number. `segment` is the begin and the end of the segment in seconds; None is the whole run.
    `incidents` are the recorded failures of a replay; empty if the failures are drawn. `as_recorded` is whether an
    instance that needs a replacement is fit again when the record says, and not after `replace_s`.
    """

    profile: Profile
    conditions: Conditions
    failures: tuple[Failure, ...]
    seed: int
    segment: tuple[float, float] | None = None
    incidents: tuple[Incident, ...] = ()
    as_recorded: bool = False

    @property
    def begins_s(self) -> float:
        """Begin of the trace, in seconds since the whole run began."""
        return self.segment[0] if self.segment is not None else 0.0

    @property
    def ends_s(self) -> float:
        """End of the trace, in seconds since the whole run began."""
        return self.segment[1] if self.segment is not None else self.profile.seconds

    def under(self, conditions: Conditions) -> FailureTrace:
        """Return the same run under other conditions. What the conditions decide of a failure is decided anew."""
        if self.incidents:
            return replayed_trace(self.profile, conditions, self.seed, self.incidents, as_recorded=self.as_recorded)
        return failure_trace(self.profile, conditions, self.seed)


def replayed_trace(
    profile: Profile,
    conditions: Conditions,
    seed: int,
    incidents: Sequence[Incident],
    *,
    as_recorded: bool = False,
) -> FailureTrace:
    """Return a trace of recorded failures. The seed draws what the record does not hold, such as what a log says.

    Args:
        profile: the gang, and the length of the run.
        conditions: the delays.
        seed: seed of what the record does not hold.
        incidents: the recorded failures, in order of time.
        as_recorded: whether an instance that needs a replacement is fit again at the recorded end of its fault.
    """
    listed = tuple(incident for incident in incidents if incident.at_s < profile.seconds)
    failures = [_replayed(i, incident, profile, conditions, seed) for i, incident in enumerate(listed)]
    if as_recorded:
        failures = [
            replace(failure, back_s=failure.until_s) if failure.cure is Cure.REPLACE else failure
            for failure in failures
        ]
    return FailureTrace(profile, conditions, tuple(failures), seed, incidents=listed, as_recorded=as_recorded)


def _replayed(number: int, incident: Incident, profile: Profile, conditions: Conditions, seed: int) -> Failure:
    draw = random.Random(f"{seed}/replay/{number}")
    depth, verdict, accused, named = (draw.random() for _ in range(4))
    first_sight = incident.cure is Cure.REPLACE and verdict < conditions.verdict_share
    return Failure(
        number,
        incident.at_s,
        incident.place,
        incident.cause,
        incident.cure,
        incident.shows,
        of_lemon=False,
        depth=depth if incident.seen else 1.0,
        verdict=Cure.REPLACE if first_sight else Cure.REBOOT,
        relapse_s=draw.expovariate(1.0) * conditions.relapse_s,
        human_s=conditions.human_s * math.exp(draw.gauss(0, 1) * conditions.human_spread),
        accused=_accused(profile.instances, conditions.false_alarm, accused, incident.place),
        named_draw=named if incident.seen else 1.0,
        until_s=incident.until_s,
    )


def failure_trace(profile: Profile, conditions: Conditions, seed: int) -> FailureTrace:
    """Draw the failures of a run, in order of time.

    Their number is the expected one and their times are uniform: a Poisson process, given its number of events. Causes
    follow the proportions of the mix as exactly as their number allows, in random order. With fewer failures than
    causes, the chance of each cause is proportional to its weight.
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
    total, causes, passed = sum(cause.weight for cause in mix), list[CauseOfFailure](), 0.0
    for cause in mix:
        passed += cause.weight
        while len(causes) < number and (len(causes) + offset) * total < passed * number:
            causes.append(cause)
    return causes + [mix[-1]] * (number - len(causes))  # rounding may lose the last point


def _lemons(profile: Profile, conditions: Conditions, draw: random.Random) -> list[int]:
    """Places of the lemons in the gang."""
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
    # Every value is drawn, used or not: a changed condition then changes only the values that depend on it.
    cured, hangs, depth, verdict, lemon, place, lemon_place = (draw.random() for _ in range(7))
    relapse, human, accused, named = draw.expovariate(1.0), draw.gauss(0, 1), draw.random(), draw.random()
    cure, shows = _cure(cause, cured < conditions.reboot_share), _shows(cause, hangs < conditions.hang_share)
    of_lemon = cause.cure == "node" and lemon < _share_of_lemons(conditions)
    hit_place = lemons[int(lemon_place * len(lemons))] if of_lemon else int(place * profile.instances)
    first_sight = cure is Cure.REPLACE and verdict < conditions.verdict_share
    return Failure(
        number,
        at_s,
        hit_place,
        cause.name,
        cure,
        shows,
        of_lemon,
        depth=depth if cause.seen else 1.0,
        verdict=Cure.REPLACE if first_sight else Cure.REBOOT,
        relapse_s=relapse * conditions.relapse_s,
        human_s=conditions.human_s * math.exp(human * conditions.human_spread),
        accused=_accused(profile.instances, conditions.false_alarm, accused, hit_place),
        named_draw=named if cause.seen else 1.0,
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
    """Share of all instance failures that lemons have, where the failure rate of the whole fleet stays the same."""
    lemon_rate = conditions.lemon_share * conditions.lemon_factor
    return lemon_rate / (lemon_rate + 1 - conditions.lemon_share)


def _accused(instances: int, chance: float, drawn: float, faulty_place: int) -> tuple[int, ...]:
    """Places of healthy instances that a check of every instance finds faulty.

    Args:
        instances: size of the gang.
        chance: probability that the check of a healthy instance finds it faulty.
        drawn: the only draw, uniform in [0, 1), for a Poisson number of places; the places are evenly spaced.
        faulty_place: place of the faulty instance, from which the places are counted.
    """
    term = math.exp(-instances * chance)
    number, passed = 0, term
    while passed < drawn and number < instances - 1 and term > 0:
        number += 1
        term *= instances * chance / number
        passed += term
    apart = max(1, instances // (number + 1))
    return tuple((faulty_place + (i + 1) * apart) % instances for i in range(number))
