"""Reduces a failing scenario to the few faults that make it fail (delta debugging)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from simulator.faults.injector import Fault
from simulator.faults.schedule import InstanceFault
from simulator.trials.scenario import Scenario

RUNS_MAX = 400
"""Upper bound of the runs that one reduction may take."""


def shrunk(scenario: Scenario, breaks: Callable[[Scenario], bool]) -> Scenario:
    """Return a smaller scenario that still fails, after at most about `RUNS_MAX` runs.

    Faults are removed by halves first, then by smaller and smaller pieces (delta debugging). Then jobs and spare
    instances are removed, and each fault on several instances is reduced to a single instance.

    Args:
        scenario: The failing scenario.
        breaks: Runs a scenario and returns whether it still fails.
    """
    spent = 0

    def tried(candidate: Scenario) -> bool:
        nonlocal spent
        spent += 1
        return spent <= RUNS_MAX and breaks(candidate)

    small = _with_fewer_faults(scenario, tried)
    while (simpler := next(filter(tried, _simpler(small)), None)) is not None:
        small = simpler
    return _with_fewer_faults(small, tried)


def _simpler(scenario: Scenario) -> Iterator[Scenario]:
    """Yield the scenario without one job, with fewer instances, or with a fault on a single instance."""
    if scenario.cluster.instances > max(job.nnodes for job in scenario.jobs):
        yield replace(scenario, cluster=replace(scenario.cluster, instances=scenario.cluster.instances - 1))
    for number in range(len(scenario.jobs) if len(scenario.jobs) > 1 else 0):
        yield replace(scenario, jobs=(*scenario.jobs[:number], *scenario.jobs[number + 1 :]))
    for number, fault in enumerate(scenario.faults):
        if isinstance(fault, InstanceFault) and len(fault.machines) > 1:
            for instance in fault.machines:
                alone = replace(fault, machines=(instance,))
                yield replace(scenario, faults=(*scenario.faults[:number], alone, *scenario.faults[number + 1 :]))


def _with_fewer_faults(scenario: Scenario, breaks: Callable[[Scenario], bool]) -> Scenario:
    def still_breaks(faults: Sequence[Fault]) -> bool:
        return breaks(replace(scenario, faults=tuple(faults)))

    kept: list[Fault] = list(scenario.faults)
    piece = max(1, len(kept) // 2)
    while kept:
        smaller = _without_a_piece(kept, piece, still_breaks)
        if smaller is not None:
            kept, piece = smaller, min(piece, max(1, len(smaller) // 2))
        elif piece == 1:
            break
        else:
            piece = max(1, piece // 2)
    return replace(scenario, faults=tuple(kept))


def _without_a_piece(
    faults: Sequence[Fault], piece: int, still_breaks: Callable[[Sequence[Fault]], bool]
) -> list[Fault] | None:
    for start in range(0, len(faults), piece):
        rest = [*faults[:start], *faults[start + piece :]]
        if still_breaks(rest):
            return rest
    return None
