"""Sensitivity of the figures: one assumption changed at a time, with the same failures.

A change of the checkpoints alters no episode of a policy. So its effect is computed afterwards, for every policy. The
bound chooses anew. Changes that alter episodes are swept with the product's own way at its best, which takes
milliseconds. The differences between its results are what the sweep shows.

In a replay of recorded incidents the failures stay. A sweep that would draw other failures is left out (`SKIPPED`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import mean
from typing import Any

from simulator.goodput.accounting import ettr
from simulator.goodput.assumptions import LEVELS, Assumptions, Conditions
from simulator.goodput.contenders import LEVERS
from simulator.goodput.failure_trace import FailureTrace, failure_trace
from simulator.goodput.formula import best_checkpoint_s
from simulator.goodput.gang_rules import GangPolicy
from simulator.goodput.lower_bound import LowerBound
from simulator.goodput.policy import Policy, PolicyRun
from simulator.goodput.runner import play

SPARES = (0, 1, 2, 4, 8)
"""Numbers of spare instances for the sweep."""
FAILURES_MIN, SEEDS_MAX = 100, 5
"""Failures that the runs of a cluster size should have together, and the largest number of runs to reach them."""
REBOOT_SHARES = (0.3, 0.45, 0.6, 0.75, 0.9)
"""Shares of the instance faults that a reboot cures, for the sweep."""
CHECKPOINTS_S = (60, 150, 300, 600, 1_800, 3_600)
"""Checkpoint intervals for the sweep, in seconds."""
SKIPPED = ("reboot_share", "by_size")
"""Sweeps that are left out in a replay, because they would draw other failures."""
IN_MEMORY = ("checkpoint_s", "stall_s", "persist_s")
"""Tuned conditions of a trainer that saves its state in the memory of the instances."""


def sensitivity(
    trace: FailureTrace, facts: Assumptions, way: GangPolicy, runs: Mapping[str, PolicyRun]
) -> dict[str, Any]:
    """Return every sweep of the report; `runs` are the runs of all policies on `trace`, by name."""
    return {
        "checkpoint_s": checkpoints(trace, runs, facts),
        "check_level": [{"level": level, "ettr": _ettr(trace, _with(way, level=level))} for level in LEVELS],
        "spares": [{"spares": spares, "ettr": _ettr(trace, replace(way, spares=spares))} for spares in SPARES],
        "reboot_share": [
            {
                "reboot_share": share,
                "ettr": _ettr_with(trace, way, reboot_share=share),
                "ettr_without_spares": _ettr_with(trace, replace(way, spares=0), reboot_share=share),
            }
            for share in (() if trace.incidents else REBOOT_SHARES)
        ],
        "leave_out_after": [
            {"times": times, "ettr": _ettr(trace, _with(way, leave_out_after=times))} for times in (None, 2, 1)
        ],
        "ladder": improvements(trace, facts, way),
        "conditions": ranges(trace, facts, way),
        "skipped": list(SKIPPED) if trace.incidents else [],
    }


def _with(way: GangPolicy, **changed: Any) -> GangPolicy:
    return replace(way, abilities=replace(way.abilities, **changed))


def in_memory(facts: Assumptions) -> dict[str, float]:
    """Return the tuned conditions of a trainer that saves its state in the memory of the instances."""
    return {name: facts.tuned[name].value for name in IN_MEMORY}


def improvements(trace: FailureTrace, facts: Assumptions, way: GangPolicy) -> list[dict[str, Any]]:
    """Return the ETTR after each improvement, each added to those before; `by` is who could make the improvement."""
    steps = [("as it is", "", way, dict[str, float]())]
    for about, changed in LEVERS.values():
        way = _with(way, **changed)
        steps.append((about, "the product", way, {}))
    values: dict[str, float] = {}
    for about in dict.fromkeys(tuned.about for tuned in facts.tuned.values()):
        values |= {name: tuned.value for name, tuned in facts.tuned.items() if tuned.about == about}
        by = next(tuned.by for tuned in facts.tuned.values() if tuned.about == about)
        steps.append((about, by, way, dict(values)))
    return [
        {"what": title, "by": by, "ettr": _ettr_with(trace, step_way, **values)}
        for title, by, step_way, values in steps
    ]


def checkpoints(trace: FailureTrace, runs: Mapping[str, PolicyRun], facts: Assumptions) -> list[dict[str, Any]]:
    """Return the ETTR of every policy by checkpoint interval, at the best interval, and in memory."""
    profile, conditions = trace.profile, trace.conditions
    failures_per_s = len(trace.failures) / profile.seconds
    best = best_checkpoint_s(failures_per_s, conditions.stall_s) if conditions.stall_s and failures_per_s else 0.0
    variants = {f"every {interval} s": {"checkpoint_s": float(interval)} for interval in CHECKPOINTS_S}
    if best:
        variants["at the best interval for these stalls"] = {"checkpoint_s": best}
    variants["in memory"] = in_memory(facts)
    bounds = {bound.name: bound for bound in (LowerBound(), LowerBound(memory_checkpoints=True))}
    rows = []
    for name, changed in variants.items():
        variant = replace(conditions, **changed)
        by_policy = {
            policy: ettr(
                bounds[policy].run(replace(trace, conditions=variant)) if policy in bounds else run,
                profile.seconds,
                variant,
            )
            for policy, run in runs.items()
        }
        rows.append({"checkpoints": name, **changed, "ettr": by_policy})
    return rows


def ranges(trace: FailureTrace, facts: Assumptions, way: GangPolicy) -> list[dict[str, Any]]:
    """Return the ETTR at both ends of the range of each condition."""
    rows = []
    for name in Conditions.__slots__:
        fact = facts.facts[f"conditions.{name}"]
        if fact.low is None or fact.high is None:
            continue
        at_low, at_high = (_ettr_with(trace, way, **{name: end}) for end in (fact.low, fact.high))
        rows.append(
            {"condition": name, "low": fact.low, "high": fact.high, "ettr_at_low": at_low, "ettr_at_high": at_high}
        )
    return rows


def by_effect(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of `ranges` in the order of the difference between both ends, largest first."""
    return sorted(rows, key=lambda row: -abs(row["ettr_at_high"] - row["ettr_at_low"]))


def by_sizes(
    trace: FailureTrace,
    policies: Sequence[Policy],
    runs: Mapping[str, PolicyRun],
    sizes: Sequence[int],
    workers: int = 1,
) -> dict[str, Any]:
    """Return the ETTR of each policy on clusters of `sizes` instances, with the profile's failures per node-day.

    A single run of a small cluster has few failures and says little. So the ETTR of a small cluster is the mean of
    several runs.

    Args:
        trace: the failures of the profile's own size.
        policies: the policies to run.
        runs: the runs of the policies on `trace`, by name.
        sizes: numbers of instances.
        workers: processes to use.
    """
    traces = {size: _traces(trace, size) for size in sizes}
    known = {(policy.name, trace): runs[policy.name] for policy in policies}
    missing = [(policy, other) for size in sizes for other in traces[size] for policy in policies if other != trace]
    results = play(missing, workers)
    known |= {(policy.name, other): run for (policy, other), run in zip(missing, results, strict=True)}
    seconds, conditions = trace.profile.seconds, trace.conditions
    ettrs = {
        policy.name: [
            mean(ettr(known[policy.name, other], seconds, conditions) for other in traces[size]) for size in sizes
        ]
        for policy in policies
    }
    return {"instances": list(sizes), "ettr": ettrs}


def _traces(trace: FailureTrace, size: int) -> list[FailureTrace]:
    resized = trace.profile.resized(size)
    seeds_needed = round(FAILURES_MIN / (resized.failures_per_s * resized.seconds))
    number = max(1, min(SEEDS_MAX, seeds_needed))
    return [failure_trace(resized, trace.conditions, seed) for seed in range(trace.seed, trace.seed + number)]


def _ettr_with(trace: FailureTrace, way: GangPolicy, **changed: float) -> float:
    return _ettr(trace.under(replace(trace.conditions, **changed)), way)


def _ettr(trace: FailureTrace, way: GangPolicy) -> float:
    return ettr(way.run(trace), trace.profile.seconds, trace.conditions)
