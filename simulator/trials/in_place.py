"""Runs with restart in place: ranks are held, and their commands are late, doubled or lost.

A run is drawn from the seed as every other run. Then each job is restarted in place where that is possible, node agents
report, and ranks end more often with a log whose diagnosis restarts the job.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gpu_recovery.core.job.adoption import Adoption

from simulator.cloud.log_output import TRUTH, LogStory
from simulator.faults import instances
from simulator.faults.schedule import TimedFault
from simulator.trials import generator
from simulator.trials.scenario import Scenario

if TYPE_CHECKING:
    from simulator.world import World

HABITS = (TRUTH, *(LogStory.SERVICE,) * 5, LogStory.ECC, LogStory.ECC, LogStory.GPU, LogStory.RDMA, LogStory.NOTHING)
"""What the programs write when they fail: mostly a cause that restarts the job without the check of all instances."""
HOLDS_S = (15, 60, 60, 300)
"""Seconds for which a container waits for the next attempt. A short hold often ends before a late start arrives."""
DELAYS_S: tuple[tuple[float, ...], ...] = (
    *((0.0,),) * 3,
    (0.0, 20.0),
    (0.0, 0.0, 5.0),
    (9.0, 14.0),
    (90.0,),
    (),
)
"""Seconds until a command to hold or start a rank takes effect, once for each time. Without any, it is lost."""
ENDS_MAX = 5

Draw = random.Random


def scenario_of(seed: int) -> Scenario:
    """Draw the scenario of the seed."""
    draw = Draw(f"in place {seed}")
    scenario = generator.scenario_of(seed)
    policy = {name: value for name, value in scenario.cluster.policy.items() if name not in ("preset", "observe_only")}
    policy |= {"restart_in_place": True, "container_hold_s": draw.choice(HOLDS_S)}
    policy |= {"pending_retry_s": draw.choice((1, 1, 30))}
    policy["attempts_max"] = draw.choice((3, 6))
    cluster = replace(scenario.cluster, agents=True, wrapped=True, diagnose=True, adopt=Adoption.OFF, policy=policy)
    jobs = tuple(replace(job, by_hand=False, writes=draw.choice(HABITS)) for job in scenario.jobs)
    return replace(scenario, cluster=cluster, jobs=jobs, faults=(*scenario.faults, *_ends(draw)))


def _ends(draw: Draw) -> tuple[TimedFault, ...]:
    """Draw ends of ranks. Many follow soon after another end, while the ranks are held or are being started again."""
    faults: list[TimedFault] = []
    at_s = draw.uniform(60, 600)
    for _ in range(draw.randint(1, ENDS_MAX)):
        where: dict[str, Any] = {"at_s": round(at_s, 1), "machines": (draw.randrange(generator.INSTANCES_MAX),)}
        kind = draw.random()
        if kind < 0.7:
            faults.append(instances.RankExits(code=draw.choice((1, 1, 134, 137)), **where))
        elif kind < 0.85:
            faults.append(instances.NodeAgentSilent(for_s=draw.choice((20.0, 60.0, 400.0)), **where))
        else:
            faults.append(instances.HostDies(**where))
        at_s += draw.uniform(1, 25) if draw.random() < 0.6 else draw.uniform(60, 900)
    return tuple(faults)


def commands_of(seed: int) -> Callable[[World], None]:
    """Return what lets the commands to the wrappers of the seed's run be late, doubled or lost, until `quiet_s`."""
    draw = Draw(f"commands in place {seed}")

    def begin(world: World) -> None:
        assert world.agents is not None
        agents = world.agents
        agents.command_delays_s = draw.choice(DELAYS_S)
        world.timeline.after(generator.QUIET_S, lambda: setattr(agents, "command_delays_s", (0.0,)))

    return begin
