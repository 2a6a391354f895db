"""One injected fault: the observations that it leaves behind, and its true cause and place.

The cluster has four instances n0-n3 with four workers each, two instances to a rack, ranks in order. The workers that a
fault does not touch report as healthy workers do, with five per cent of noise.
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
NODES, WORKERS = 4, 4
TOPOLOGY = Topology.of(Worker(f"w{n}", f"n{n // WORKERS}", f"r{n // WORKERS // 2}", n) for n in range(NODES * WORKERS))
ALL = frozenset(range(NODES * WORKERS))


@dataclass(frozen=True)
class FaultCase:
    """One fault. `causes`: what it may rightly be called; `instances`: where it is, none for the job as a whole."""

    name: str
    family: str
    causes: frozenset[Cause]
    instances: frozenset[str]
    reports: tuple[Observation, ...]


def made(
    of: Callable[..., Observation], worker: int | None = None, age_s: float = 20.0, /, **given: Any
) -> Observation:
    name = {} if worker is None else {"worker": f"w{worker}", "rank": worker, "instance_id": f"n{worker // WORKERS}"}
    return of(report_id="", at_s=AT_S - age_s, **name, **given)


def healthy(alone: Iterable[int], seed: int) -> list[Observation]:
    """What workers that nothing is wrong with report."""
    drawn = random.Random(seed)
    found = []
    for n in sorted(alone):
        noise = drawn.lognormvariate(0, 0.05)
        found += [
            made(RpcReport, n, connect_s=0.02, send_s=0.1, header_s=2.0 * noise, body_s=0.3, status=200),
            made(WorkerHealth, n, 5.0, memory_free_gb=20.0 * noise, cpu_percent=40.0 * noise, active_requests=1),
            made(CallTiming, n, method="train", seconds=1.0 * noise),
            *(made(ProgressReport, n, 20.0 - 5 * k, value=float(100 + k)) for k in range(4)),
        ]
    return found


def case(
    name: str,
    family: str,
    cause: Cause | Sequence[Cause],
    instances: Sequence[str],
    reports: Sequence[Observation],
    touched: Iterable[int] = (),
) -> FaultCase:
    """With the healthy rest: everybody but those whose calls the fault touches."""
    causes = frozenset({cause} if isinstance(cause, Cause) else cause)
    whole = [*reports, *healthy(ALL - set(touched), seed=len(name))]
    named = tuple(replace(one, report_id=f"{name}-{n}") for n, one in enumerate(whole))
    return FaultCase(name, family, causes, frozenset(instances), named)


def late(worker: int, stage: RpcStage, **more: Any) -> Observation:
    return made(RpcReport, worker, 10.0, failed_at=stage, timed_out=True, **more)


def lates(workers: Iterable[int], stage: RpcStage) -> list[Observation]:
    return [late(n, stage) for n in workers]


def log(worker: int, line: str, kind: str, role: str = "root") -> Observation:
    return made(LogFinding, worker, line=line, kind=kind, role=role)


def hung(stuck: Iterable[int]) -> list[Observation]:
    """All ranks wait in one collective, but for those that never came."""
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
