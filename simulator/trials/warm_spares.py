"""Runs with warm spares: each run with restart in place also has containers that wait on idle instances."""

from __future__ import annotations

import random
from dataclasses import replace

from simulator.trials import in_place
from simulator.trials.scenario import Scenario

commands_of = in_place.commands_of


def scenario_of(seed: int) -> Scenario:
    """Draw the scenario of the seed: that of the run with restart in place, with more instances and warm spares."""
    draw = random.Random(f"warm spares {seed}")
    scenario = in_place.scenario_of(seed)
    policy = {**scenario.cluster.policy, "warm_spares": draw.choice((1, 1, 2))}
    policy["poll_interval_s"] = draw.choice((30, 120))
    sizes = scenario.cluster
    sizes = replace(sizes, instances=sizes.instances + draw.randint(0, 2), policy=policy)
    return replace(scenario, cluster=sizes)
