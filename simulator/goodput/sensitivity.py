"""What the figures depend on: one thing changed at a time, the failures kept.

A change of the checkpoints alters no episode, so it is counted afterwards, for every policy. Whatever alters episodes
is swept with the floor, which goes the way of the product and takes milliseconds; its differences are what count there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import mean
from typing import Any

from simulator.goodput.accounting import ettr
from simulator.goodput.assumptions import LEVELS, Assumptions, Conditions
from simulator.goodput.failure_trace import FailureTrace, failure_trace
from simulator.goodput.formula import best_checkpoint_s
from simulator.goodput.lower_bound import LowerBound
from simulator.goodput.policy import Policy, PolicyRun
from simulator.goodput.runner import play

SPARES = (0, 1, 2, 4, 8)
FAILURES_ENOUGH, SEEDS_MOST = 100, 5
"""A size is run so often that it has about so many failures, but no more than so often."""
REBOOT_SHARES = (0.3, 0.45, 0.6, 0.75, 0.9)
CHECKPOINTS_S = (60, 150, 300, 600, 1_800, 3_600)
EVERY_STEP = ("checkpoint_s", "stall_s", "persist_s")
"""The tuned conditions of a trainer that keeps every step."""


def sensitivity(
    given: FailureTrace, facts: Assumptions, floor: LowerBound, runs: Mapping[str, PolicyRun]
) -> dict[str, Any]:
    """Every sweep of the report; `runs` are the runs of all policies on the course."""
    return {
        "checkpoint_s": checkpoints(given, runs, facts),
        "check_level": [{"level": level, "ettr": _ettr(given, replace(floor, level=level))} for level in LEVELS],
        "spares": [{"spares": spares, "ettr": _ettr(given, replace(floor, spares=spares))} for spares in SPARES],
        "reboot_share": [
            {
                "reboot_share": share,
                "ettr": _under(given, floor, reboot_share=share),
                "ettr_without_spares": _under(given, replace(floor, spares=0), reboot_share=share),
            }
            for share in REBOOT_SHARES
        ],
        "leave_out_after": [
            {"times": times, "ettr": _ettr(given, replace(floor, leave_out_after=times))} for times in (None, 2, 1)
        ],
        "ladder": improvements(given, facts, floor),
        "conditions": ranges(given, facts, floor),
    }


def improvements(given: FailureTrace, facts: Assumptions, floor: LowerBound) -> list[dict[str, Any]]:
    """What would raise the ETTR, one thing on top of the other; `by` is who could do it."""
    every = [("as it is", "", floor, dict[str, float]())]
    floor = replace(floor, trusts_exits=True)
    every.append(
        ("where one rank ended first, nobody waits for checks, whatever its log says", "the product", floor, {})
    )
    changed: dict[str, float] = {}
    for about in dict.fromkeys(one.about for one in facts.tuned.values()):
        changed |= {name: one.value for name, one in facts.tuned.items() if one.about == about}
        by = next(one.by for one in facts.tuned.values() if one.about == about)
        every.append((about, by, floor, dict(changed)))
    return [{"what": what, "by": by, "ettr": _under(given, under, **now)} for what, by, under, now in every]


def checkpoints(given: FailureTrace, runs: Mapping[str, PolicyRun], facts: Assumptions) -> list[dict[str, Any]]:
    """The ETTR of every policy by the interval between checkpoints, at the best interval, and with every step kept."""
    profile, conditions = given.profile, given.conditions
    best = best_checkpoint_s(profile.failures_per_s, conditions.stall_s) if conditions.stall_s else 0.0
    ways = {f"every {every} s": {"checkpoint_s": float(every)} for every in CHECKPOINTS_S}
    if best:
        ways[f"every {best:.0f} s, the best for these stalls"] = {"checkpoint_s": best}
    ways["every step, as ByteRobust"] = {name: facts.tuned[name].value for name in EVERY_STEP}
    found = []
    for name, changed in ways.items():
        then = replace(conditions, **changed)
        by_policy = {policy: ettr(run, profile.seconds, then) for policy, run in runs.items()}
        found.append({"checkpoints": name, **changed, "ettr": by_policy})
    return found


def ranges(given: FailureTrace, facts: Assumptions, floor: LowerBound) -> list[dict[str, Any]]:
    """Each condition at both ends of its range, those that matter most first."""
    found = []
    for name in Conditions.__slots__:
        fact = facts.facts[f"conditions.{name}"]
        if fact.low is None or fact.high is None:
            continue
        at_low, at_high = (_under(given, floor, **{name: end}) for end in (fact.low, fact.high))
        found.append(
            {"condition": name, "low": fact.low, "high": fact.high, "ettr_at_low": at_low, "ettr_at_high": at_high}
        )
    return sorted(found, key=lambda one: -abs(one["ettr_at_high"] - one["ettr_at_low"]))


def by_sizes(
    given: FailureTrace,
    contenders: Sequence[Policy],
    runs: Mapping[str, PolicyRun],
    sizes: Sequence[int],
    workers: int = 1,
) -> dict[str, Any]:
    """The ETTR of each contender on clusters of these numbers of machines that fail as often as the profile's.

    Few machines fail so seldom that one run says little: of small clusters it is the mean of several runs.
    """
    courses = {size: _courses(given, size) for size in sizes}
    known = {(one.name, given): runs[one.name] for one in contenders}
    missing = [(one, each) for size in sizes for each in courses[size] for one in contenders if each != given]
    made = play(missing, workers)
    known |= {(one.name, each): run for (one, each), run in zip(missing, made, strict=True)}
    seconds, conditions = given.profile.seconds, given.conditions
    ettrs = {
        one.name: [mean(ettr(known[one.name, each], seconds, conditions) for each in courses[size]) for size in sizes]
        for one in contenders
    }
    return {"instances": list(sizes), "ettr": ettrs}


def _courses(given: FailureTrace, size: int) -> list[FailureTrace]:
    resized = given.profile.resized(size)
    enough = round(FAILURES_ENOUGH / (resized.failures_per_s * resized.seconds))
    times = max(1, min(SEEDS_MOST, enough))
    return [failure_trace(resized, given.conditions, seed) for seed in range(given.seed, given.seed + times)]


def _under(given: FailureTrace, floor: LowerBound, **changed: float) -> float:
    return _ettr(failure_trace(given.profile, replace(given.conditions, **changed), given.seed), floor)


def _ettr(given: FailureTrace, floor: LowerBound) -> float:
    return ettr(floor.run(given), given.profile.seconds, given.conditions)
