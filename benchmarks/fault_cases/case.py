"""Fault case: the observations of an injected fault, with its true causes and instances.

The cluster has four instances n0-n3 with four workers each. A rack has two instances, and ranks are in the order of the
workers. Workers that the fault does not affect send observations of healthy workers, with 5 % of noise.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpu_recovery.core.diagnosis.case import Topology, Worker
from gpu_recovery.core.diagnosis.observations import (
    CallTiming,
    FlightReport,
    LogFinding,
    Observation,
    ProgressReport,
    RpcReport,
    RpcStage,
    WorkerHealth,
)
from gpu_recovery.core.diagnosis.taxonomy import Cause

AT_S = 1_000_000.0
"""Time of the diagnosis, in seconds since 1970."""
NODES, WORKERS = 4, 4
"""Number of instances, and workers of each."""
TOPOLOGY = Topology.of(Worker(f"w{n}", f"n{n // WORKERS}", f"r{n // WORKERS // 2}", n) for n in range(NODES * WORKERS))
ALL = frozenset(range(NODES * WORKERS))
"""Ranks of all workers."""


@dataclass(frozen=True)
class FaultCase:
    """An injected fault.

    Args:
        name: name of the case; unique.
        family: family of faults, under which the benchmark counts the case.
        causes: the causes that are right answers.
        instances: the true instances. Empty if the fault concerns the job as a whole.
        reports: the observations that the diagnosis gets.
    """

    name: str
    family: str
    causes: frozenset[Cause]
    instances: frozenset[str]
    reports: tuple[Observation, ...]


def made(
    of: Callable[..., Observation], worker: int | None = None, age_s: float = 20.0, /, **fields: Any
) -> Observation:
    """Return an observation.

    Args:
        of: type of the observation.
        worker: rank of the worker that sent it. None: the observation is not of a worker.
        age_s: age of the observation at the diagnosis, in seconds.
        fields: the other fields of the observation.
    """
    name = {} if worker is None else {"worker": f"w{worker}", "rank": worker, "instance_id": f"n{worker // WORKERS}"}
    return of(report_id="", at_s=AT_S - age_s, **name, **fields)


def healthy(alone: Iterable[int], seed: int) -> list[Observation]:
    """Return the observations of healthy workers with the ranks `alone`."""
    drawn = random.Random(seed)
    observations = []
    for n in sorted(alone):
        noise = drawn.lognormvariate(0, 0.05)
        observations += [
            made(RpcReport, n, connect_s=0.02, send_s=0.1, header_s=2.0 * noise, body_s=0.3, status=200),
            made(WorkerHealth, n, 5.0, memory_free_gb=20.0 * noise, cpu_percent=40.0 * noise, active_requests=1),
            made(CallTiming, n, method="train", seconds=1.0 * noise),
            *(made(ProgressReport, n, 20.0 - 5 * k, value=float(100 + k)) for k in range(4)),
        ]
    return observations


def case(
    name: str,
    family: str,
    cause: Cause | Sequence[Cause],
    instances: Sequence[str],
    reports: Sequence[Observation],
    touched: Iterable[int] = (),
) -> FaultCase:
    """Return a fault case: the observations of the fault, and those of the healthy workers.

    Args:
        name: name of the case.
        family: family of the case.
        cause: the true cause, or all causes that are right answers.
        instances: the true instances.
        reports: the observations of the fault.
        touched: ranks of workers for which no healthy observations are added.
    """
    causes = frozenset({cause} if isinstance(cause, Cause) else cause)
    whole = [*reports, *healthy(ALL - set(touched), seed=len(name))]
    named = tuple(replace(report, report_id=f"{name}-{n}") for n, report in enumerate(whole))
    return FaultCase(name, family, causes, frozenset(instances), named)


def late(worker: int, stage: RpcStage, **more: Any) -> Observation:
    """Return the observation of a call to `worker` that timed out in `stage`. `more`: further fields."""
    return made(RpcReport, worker, 10.0, failed_at=stage, timed_out=True, **more)


def lates(workers: Iterable[int], stage: RpcStage) -> list[Observation]:
    """Return such an observation for each worker."""
    return [late(n, stage) for n in workers]


def log(worker: int, line: str, kind: str, role: str = "root") -> Observation:
    """Return the observation of a log line of `worker`, with the kind and the role of the line."""
    return made(LogFinding, worker, line=line, kind=kind, role=role)


def hung(stuck: Iterable[int]) -> list[Observation]:
    """Return the flight records of all ranks. The ranks `stuck` did not join the collective; the others wait in it."""
    return [
        made(
            FlightReport,
            n,
            group="world",
            members=tuple(sorted(ALL)),
            last_enqueued=9 if n in set(stuck) else 10,
            last_completed=9,
        )
        for n in sorted(ALL)
    ]
