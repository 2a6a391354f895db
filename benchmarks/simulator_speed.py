"""Savings of the simulator's modules that exist for speed: processor time and memory, with and without each module.

    python -m benchmarks.simulator_speed [--faults N]

A factor is the value without the module, divided by the value with the module. Processor time is of this process and of
one run each. Memory is of Python objects, from `tracemalloc`. docs/simulator.md has the figures.
"""

from __future__ import annotations

import argparse
import json
import time
import tracemalloc
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

from gpu_recovery.core.job.record import JobStatus

from simulator.cloud.ec2 import ModelEc2
from simulator.cloud.ecs import SequentialEcs
from simulator.explore.cli import COMBINED
from simulator.explore.model import Bounds, DeliveryPace
from simulator.explore.reachability import backwards
from simulator.explore.search import Search
from simulator.explore.small_world import Incident
from simulator.fast.fidelity import LARGE, Checking, Fidelity
from simulator.world import World
from simulator.world_builder import CLUSTER

GANG, DAYS, CRASHES = 64, 2.0, 4
"""Default size of the gang that is simulated, days that it trains, and how often it crashes."""
STATES_COPIED = 500
"""Number of states whose values are copied one by one, to weigh a state that shares no value with others."""


def speed_figures(faults: int, gang: int = GANG, days: float = DAYS) -> dict[str, dict[str, float]]:
    """Return the factors of every module, by its name.

    Args:
        faults: upper bound of the faults in the explorer's search.
        gang: size of the gang that is simulated.
        days: days that the gang trains.
    """
    return _fast_factors(gang, days) | _explore_factors(faults)


# -- simulator.fast ----------------------------------------------------------------------------------------------------


def _fast_factors(gang: int, days: float) -> dict[str, dict[str, float]]:
    def simulate(fidelity: Fidelity, change: Callable[[World], None] = lambda world: None) -> None:
        _simulate(fidelity, gang, days, change)

    simulate(LARGE)  # imports modules and fills caches
    usual_s, _ = _timed(lambda: simulate(LARGE))
    without: dict[str, Callable[[], None]] = {
        "idle_skip": lambda: simulate(LARGE, _without_idle_skip),
        "describe_cache": lambda: simulate(LARGE, _without_describe_cache),
        "fidelity.checking": lambda: simulate(replace(LARGE, checking=Checking.EVERYTHING)),
    }
    factors = {name: {"cpu": round(_timed(run)[0] / usual_s, 2)} for name, run in without.items()}
    remembering = replace(LARGE, remembers=True)
    factors["fidelity.remembers"] = {
        "cpu": round(_timed(lambda: simulate(remembering))[0] / usual_s, 2),
        "memory": round(_peak(lambda: simulate(remembering)) / _peak(lambda: simulate(LARGE)), 2),
    }
    return factors


def _without_idle_skip(world: World) -> None:
    world.idle_skip = None


def _without_describe_cache(world: World) -> None:
    client = world.actions.ecs.client
    world.actions.ecs = SequentialEcs(client, CLUSTER, world.timeline.clock)
    world.actions.ec2 = ModelEc2(world.fleet, world.invocations)


def _simulate(fidelity: Fidelity, gang: int, days: float, change: Callable[[World], None]) -> None:
    """Simulate a gang that trains for days and crashes now and then."""
    world = World(instances=gang, fidelity=fidelity)
    change(world)
    job_id = world.submit(gang, attempts_max=CRASHES + 2)
    world.until_status(job_id, JobStatus.RUNNING)
    for _ in range(CRASHES):
        world.let_pass(days * 86_400 / CRASHES)
        world.exit(job_id, 1, 139)
        world.until_status(job_id, JobStatus.STOPPING)
        world.until_status(job_id, JobStatus.RUNNING)


# -- simulator.explore -------------------------------------------------------------------------------------------------


def _explore_factors(faults: int) -> dict[str, dict[str, float]]:
    bounds = Bounds(Incident.GPU, faults, COMBINED, DeliveryPace.ALL, crashes=faults)
    usual = _searched(bounds)
    return {
        "search": {"states": usual.walk.states, "transitions": usual.walk.transitions},
        "compact_store": {"memory": round(_compact_store(usual), 2)},
        "interning": {"memory": round(_interning(usual), 2)},
        "reachability": _reachability(usual),
    }


def _searched(bounds: Bounds) -> Search:
    search = Search(bounds)
    search.run()
    return search


def _compact_store(search: Search) -> float:
    """Return the bytes of lists of tuples, divided by the bytes of the arrays with the same numbers."""
    stage: Any = search.stage
    rows = stage._outcomes._rows

    def plain() -> Any:
        return list(stage.cores), list(search._reached), {key: tuple(rows.get(key)) for key in rows._at}

    def packed() -> Any:
        return deepcopy((stage.cores, search._reached, rows))

    return _weight(plain) / _weight(packed)


def _interning(search: Search) -> float:
    """Return the bytes of states with values of their own, divided by the bytes of states with shared values."""
    stage: Any = search.stage
    copier, cores = stage.copier, list(stage.cores)
    chosen = cores[:: max(1, len(cores) // STATES_COPIED)]

    def whole() -> Any:
        values = copier.parts.values
        rows = [[group.rows.rows[n] for group, n in zip(copier._groups, core[1:6], strict=True)] for core in chosen]
        return [[deepcopy(values[part]) for row in state for part in row] for state in rows]

    def shared() -> Any:
        return deepcopy((copier.parts, [group.rows.rows for group in copier._groups], stage.cores))

    return (_weight(whole) / len(chosen)) / (_weight(shared) / len(cores))


def _reachability(search: Search) -> dict[str, float]:
    """Return the factors against lists of predecessors by node."""
    count, finals = search.walk.states, list(search._finals)
    sources, targets = search._from, search._to

    def plain() -> bytearray:
        predecessors: dict[int, list[int]] = {}
        for source, target in zip(sources, targets, strict=True):
            predecessors.setdefault(target, []).append(source)
        reached, stack = set(finals), list(finals)
        while stack:
            for source in predecessors.get(stack.pop(), ()):
                if source not in reached:
                    reached.add(source)
                    stack.append(source)
        return bytearray(n in reached for n in range(count))

    def arrays() -> bytearray:
        return backwards(count, sources, targets, finals)

    assert plain() == arrays()
    seconds = [min(_timed(way)[0] for _ in range(3)) for way in (plain, arrays)]
    peaks = [_peak(way) for way in (plain, arrays)]
    return {"cpu": round(seconds[0] / seconds[1], 2), "memory": round(peaks[0] / peaks[1], 2)}


# -- measures ----------------------------------------------------------------------------------------------------------


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the seconds of processor time that `work` takes, and its result."""
    began = time.process_time()
    result = work()
    return time.process_time() - began, result


def _weight(make: Callable[[], Any]) -> int:
    """Return the bytes of the objects that `make` returns."""
    tracemalloc.start()
    made = make()
    weight = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    del made
    return weight


def _peak(work: Callable[[], Any]) -> int:
    """Return the largest number of bytes in use during `work`."""
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Savings of the simulator's modules that exist for speed.")
    parser.add_argument("--faults", type=int, default=1, help="faults in one run of the explorer at most; default 1")
    print(json.dumps(speed_figures(parser.parse_args().faults), indent=2))
