"""Runs with idle checks: jobs arrive while checks run, and some faults are found by a check at level 3 only.

A run is drawn from the seed as every other run. Then idle checks follow each other within minutes, further jobs are
submitted, and GPUs fail in a way that the checks of the deployment do not see.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from simulator.cloud.workloads import ONLY_DEEP
from simulator.faults import instances
from simulator.trials import generator
from simulator.trials.scenario import JobOf, Scenario

if TYPE_CHECKING:
    from simulator.world import World

PERIODS_S = (60, 120, 120, 300)
LEVELS = (2, 3, 3)
JOBS_MAX, FAULTS_MAX = 6, 2
CHECK_S = (20.0, 100.0, 300.0)
"""Seconds of a check at level 3 in these runs, in which an hour has to be short."""
LEAVES_S = (2.0, 2.0, 25.0, 600.0)
"""Seconds from SIGTERM to the end of a check. SIGKILL ends those that take longer than the `stopTimeout`."""

Draw = random.Random


def scenario_of(seed: int) -> Scenario:
    """Draw the scenario of the seed."""
    draw = Draw(f"idle checks {seed}")
    scenario = generator.scenario_of(seed)
    policy = {name: value for name, value in scenario.cluster.policy.items() if name != "observe_only"}
    policy |= {"idle_check_every_s": draw.choice(PERIODS_S), "idle_check_level": draw.choice(LEVELS)}
    policy["idle_check_percent"] = draw.choice((20, 20, 100))
    sizes = replace(scenario.cluster, policy=policy, instances=scenario.cluster.instances + draw.randint(0, 2))
    more = tuple(
        JobOf(
            nnodes=draw.randint(1, min(3, sizes.instances)),
            gpus=draw.choice((2, 8, 8)),
            at_s=round(draw.uniform(60, generator.FAULTS_UNTIL_S), 1),
            train_s=draw.choice((60.0, 300.0)),
        )
        for _ in range(draw.randint(1, JOBS_MAX))
    )
    faults = tuple(
        instances.GpuBreaks(
            at_s=round(draw.uniform(60, generator.FAULTS_UNTIL_S), 1),
            machines=(draw.randrange(generator.INSTANCES_MAX),),
            fault=ONLY_DEEP,
            cured_by=draw.choice(("reboot", "reboot", "replace")),
        )
        for _ in range(draw.randint(0, FAULTS_MAX))
    )
    return replace(scenario, cluster=sizes, jobs=(*scenario.jobs, *more), faults=(*scenario.faults, *faults))


def checks_of(seed: int) -> Callable[[World], None]:
    """Return what sets the duration of the checks of the seed's run, and the seconds that their stop takes."""
    draw = Draw(f"durations of idle checks {seed}")

    def begin(world: World) -> None:
        world.fleet.timings = replace(world.fleet.timings, deep_check_s=draw.choice(CHECK_S))
        leaves_s = draw.choice(LEAVES_S)
        world.checks.leave_s = leaves_s

    return begin
