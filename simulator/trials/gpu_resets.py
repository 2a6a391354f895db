"""Runs with resets of GPUs: some cure the fault, some do not, some fail, and some never end.

A run is drawn from the seed as every other run. Then node agents report and may reset GPUs, and GPUs fail so that the
driver asks for a reset.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from simulator.faults import instances
from simulator.faults.schedule import TimedFault
from simulator.trials import generator
from simulator.trials.scenario import Scenario

if TYPE_CHECKING:
    from simulator.world import World

ENDS: tuple[tuple[bool | None, ...], ...] = ((True,), (True,), (False, True), (None, True), (True, False), ())
"""How the resets of a run end, as in `Agents.resets`."""
CURES = ("reset", "reset", "reboot", "never")
FAULTS_MAX = 4
DAEMONS = 0.5
"""Share of the runs whose agents are tasks of a daemon service."""

Draw = random.Random


def scenario_of(seed: int) -> Scenario:
    """Draw the scenario of the seed."""
    draw = Draw(f"gpu reset {seed}")
    scenario = generator.scenario_of(seed)
    policy = {name: value for name, value in scenario.cluster.policy.items() if name != "observe_only"}
    policy |= {"gpu_reset": True, "reset_timeout_s": draw.choice((60, 300))}
    cluster = replace(scenario.cluster, agents=True, policy=policy)
    return replace(scenario, cluster=cluster, faults=(*scenario.faults, *_faults(draw)))


def _faults(draw: Draw) -> tuple[TimedFault, ...]:
    """Draw faults after which the driver asks for a reset, and others that strike while the GPUs are reset."""
    faults: list[TimedFault] = []
    at_s = draw.uniform(60, 600)
    for _ in range(draw.randint(1, FAULTS_MAX)):
        machines = (draw.randrange(generator.INSTANCES_MAX),)
        cure = draw.choice(CURES)
        faults.append(instances.GpuBreaks(at_s=round(at_s, 1), machines=machines, fault="xid119", cured_by=cure))
        later_s = round(at_s + draw.uniform(60, 200), 1)
        kind = draw.random()
        if kind < 0.2:
            silent_s = draw.choice((20.0, 200.0, 900.0))
            faults.append(instances.NodeAgentSilent(at_s=later_s, machines=machines, for_s=silent_s))
        elif kind < 0.3:
            faults.append(instances.HostDies(at_s=later_s, machines=machines))
        elif kind < 0.4:
            faults.append(instances.AgentFlaps(at_s=later_s, machines=machines, for_s=30))
        at_s += draw.uniform(100, 1_200)
    return tuple(faults)


def resets_of(seed: int) -> Callable[[World], None]:
    """Return what decides how the resets of the seed's run end, until `quiet_s`, and how its agents run."""
    draw = Draw(f"ends of resets {seed}")

    def begin(world: World) -> None:
        assert world.agents is not None
        agents = world.agents
        agents.resets = draw.choice(ENDS)
        agents.as_daemons = draw.random() < DAEMONS
        world.timeline.after(generator.QUIET_S, lambda: setattr(agents, "resets", (True,)))

    return begin
