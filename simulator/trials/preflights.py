"""Runs with a preflight: the ranks of each job test their container before the training starts.

A run is drawn from the seed as the run with restart in place is, whose commands are late, doubled or lost. Then GPUs
also fail so that only a preflight or a check shows the fault.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from simulator.cloud.preflight import ASKS_REBOOT, MISSING
from simulator.faults import instances
from simulator.faults.schedule import TimedFault
from simulator.trials import generator, in_place, warm_spares
from simulator.trials.scenario import Scenario

if TYPE_CHECKING:
    from simulator.world import World

CURES = ("reboot", "reboot", "reset", "replace", "never")
FAULTS_MAX = 3

Draw = random.Random


def scenario_of(seed: int) -> Scenario:
    """Draw the scenario of the seed. Every second run has warm spares, every third no restart in place."""
    draw = Draw(f"preflight {seed}")
    scenario = warm_spares.scenario_of(seed) if seed % 2 else in_place.scenario_of(seed)
    policy = {**scenario.cluster.policy, "preflight": "quick"}
    if seed % 3 == 0:
        policy["restart_in_place"] = False
    cluster = replace(scenario.cluster, policy=policy)
    return replace(scenario, cluster=cluster, faults=(*scenario.faults, *_faults(draw)))


def _faults(draw: Draw) -> tuple[TimedFault, ...]:
    """Draw faults that the kernel log does not show, some before the first rank starts."""
    faults: list[TimedFault] = []
    for _ in range(draw.randint(1, FAULTS_MAX)):
        at_s = draw.choice((1.0, draw.uniform(1, 600), draw.uniform(60, 2_000)))
        machines = (draw.randrange(generator.INSTANCES_MAX),)
        fault, cure = draw.choice((MISSING, ASKS_REBOOT)), draw.choice(CURES)
        faults.append(instances.GpuBreaks(at_s=round(at_s, 1), machines=machines, fault=fault, cured_by=cure))
    return tuple(faults)


def commands_of(seed: int) -> Callable[[World], None]:
    """Return what disturbs the commands to wrappers, and lets all-reduces of preflights end too late."""
    draw, disturb = Draw(f"preflight ends {seed}"), in_place.commands_of(seed)

    def begin(world: World) -> None:
        disturb(world)
        for instance in world.model_instances():
            if draw.random() < 0.15:
                world.training.preflights.unclear.add(instance.instance_id)

    return begin
