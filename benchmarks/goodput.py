"""Benchmark of recovery policies: effective training time over five seeds, as mean and range.

The models of all policies take seconds. The product's own loop takes minutes. So `make bench` measures the models and
keeps the figures of the product's runs; `python -m benchmarks.goodput NAME...` measures those that it names.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

from benchmarks import results
from benchmarks.goodput_page import write_page
from simulator.goodput.assumptions import Profile
from simulator.goodput.assumptions_file import read
from simulator.goodput.baselines import BASELINES
from simulator.goodput.contenders import CONTENDERS, own_way, way_with_agents
from simulator.goodput.failure_trace import FailureTrace, failure_trace
from simulator.goodput.lower_bound import LowerBound
from simulator.goodput.policy import Policy, PolicyRun
from simulator.goodput.production import Feature, Production, adaptive, with_agents
from simulator.goodput.report import policy_figures, trace_of
from simulator.goodput.sensitivity import improvements

FACTS = read()
SEEDS = range(1, 6)
"""Seeds of every figure."""
SPARES = (0, 4)
"""Spare instances of every policy."""
MODELS = {
    "llama3": FACTS.profile("llama3"),
    "rsc1": FACTS.profile("rsc1"),
    "llama3 at 256 instances": FACTS.profile("llama3").resized(256),
    "small": FACTS.profile("small"),
}
"""Runs of the models, by name."""
STANDBY = with_agents(2, 4, Feature.STANDBY)
"""The product's own loop with node agents and standby processes."""
MEMORY = with_agents(2, 4, Feature.STANDBY, memory_checkpoints=True)
"""The same with a copy of the state in memory each minute."""
LOOPS = (*(adaptive(2, spares) for spares in SPARES), with_agents(2, 4), STANDBY, MEMORY)
"""The product's own loop: without node agents, with them, and with what a training adds."""
PRODUCT: Mapping[str, tuple[Profile, Sequence[Production]]] = {
    "llama3 at 256 instances": (FACTS.profile("llama3").resized(256), LOOPS),
    "small": (FACTS.profile("small"), LOOPS),
    "llama3, 4 days": (FACTS.profile("llama3").shortened(4), (STANDBY, MEMORY)),
    "rsc1, 2 days": (FACTS.profile("rsc1").shortened(2), (STANDBY,)),
}
"""Runs of the product's own loop and of its peers on the same failures, by name: the run, and the loops."""


def goodput_figures(seeds: Sequence[int] = SEEDS, days: float | None = None) -> dict[str, Any]:
    """Return the figures of every model, and those of the product's runs that were measured before.

    Args:
        seeds: seeds of the failures.
        days: first days of each run; None: all of it.
    """
    profiles = {name: profile if days is None else profile.shortened(days) for name, profile in MODELS.items()}
    return {
        "facts": FACTS.digest,
        "seeds": [seeds[0], seeds[-1]],
        "models": {name: of_models(profile, seeds) for name, profile in profiles.items()},
        "improvements": {name: improved(profile, seeds) for name, profile in profiles.items()},
        "product": results.read().get("goodput", {}).get("product", {}),
    }


def product_figures(profile: Profile, loops: Sequence[Production], seeds: Sequence[int] = SEEDS) -> dict[str, Any]:
    """Measure the product's own loop on a run beside the models on the same failures."""
    began = time.process_time()
    runs = [(loop, {seed: loop.run(_trace(loop, profile, seed)) for seed in seeds}) for loop in loops]
    return of_product(profile, runs) | {"processor_s": round(time.process_time() - began)}


def of_product(profile: Profile, runs: Sequence[tuple[Production, Mapping[int, PolicyRun]]]) -> dict[str, Any]:
    """Return the figures of runs of the product, by seed, beside the models on the same failures."""
    seeds = sorted({seed for _, by_seed in runs for seed in by_seed})
    found = of_models(profile, seeds)
    found |= {loop.name: figures(loop, profile, by_seed) for loop, by_seed in runs}
    return {"facts": FACTS.digest, "seeds": [seeds[0], seeds[-1]], "policies": found}


def of_models(profile: Profile, seeds: Sequence[int]) -> dict[str, Any]:
    """Return the figures of every model on a run."""
    policies: list[Policy] = [make(spares) for spares in SPARES for make in (*BASELINES, *CONTENDERS)]
    policies += [*(own_way(2, spares) for spares in SPARES), LowerBound()]
    policies += [way_with_agents(2, 4), way_with_agents(2, 4, stands_by=True)]
    policies.append(way_with_agents(2, 4, stands_by=True, memory_checkpoints=True))
    policies.append(LowerBound(memory_checkpoints=True))
    return {
        policy.name: figures(policy, profile, {seed: policy.run(_trace(policy, profile, seed)) for seed in seeds})
        for policy in policies
    }


def _trace(policy: Policy, profile: Profile, seed: int) -> FailureTrace:
    """Return the failures of a seed, with the checkpoints that the policy has."""
    return trace_of(policy, failure_trace(profile, FACTS.conditions, seed), FACTS)


def figures(policy: Policy, profile: Profile, runs: Mapping[int, PolicyRun]) -> dict[str, Any]:
    """Return the figures of a policy: ETTR in percent with its range, and the means of the others.

    Args:
        policy: the policy.
        profile: the run.
        runs: the runs of the policy by seed.
    """
    each = [policy_figures(_trace(policy, profile, seed), policy, run) for seed, run in runs.items()]
    percents = [100 * one["ettr"] for one in each]
    return {
        "ettr": round(mean(percents), 2),
        "min": round(min(percents), 2),
        "max": round(max(percents), 2),
        "overhead": _mean([one["overhead"] for one in each]),
        "own_way": _mean([one["over_own_way"] for one in each]),
        "p50_min": _mean([one["mttr_s"]["p50"] for one in each], 60),
        "p90_min": _mean([one["mttr_s"]["p90"] for one in each], 60),
        "stops": _mean([one["interruptions"] for one in each]),
        "operator_calls": _mean([one["people_called"] for one in each]),
    }


def _mean(values: Sequence[float | None], unit: float = 1.0) -> float:
    """Mean of the values in another unit; 0 if no run has a value."""
    known = [value for value in values if value is not None]
    return round(mean(known) / unit, 2) if known else 0.0


def improved(profile: Profile, seeds: Sequence[int]) -> dict[str, float]:
    """Return the ETTR in percent of the product's own way with 4 spares after each improvement, as a mean."""
    rows = [improvements(failure_trace(profile, FACTS.conditions, seed), FACTS, own_way(2, 4)) for seed in seeds]
    return {each[0]["what"]: round(100 * mean(row["ettr"] for row in each), 2) for each in zip(*rows, strict=True)}


def main(names: Sequence[str]) -> None:
    """Measure the models and the product's runs with these names; write them to results.json and docs/simulator.md.

    Raises:
        SystemExit: there is no run with such a name.
    """
    for name in names:
        if name not in PRODUCT:
            raise SystemExit(f"there is no run {name!r}; there are {', '.join(PRODUCT)}")
    found = goodput_figures()
    for name in names:
        found["product"][name] = product_figures(*PRODUCT[name])
        results.update("goodput", found)
    results.update("goodput", found)
    write_page(found)


if __name__ == "__main__":
    main(sys.argv[1:])
