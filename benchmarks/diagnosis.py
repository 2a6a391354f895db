"""Benchmark of the diagnosis: quality of its results, and time for a large window.

The quality is measured for injected faults, the time for a window of 1,024 workers. `stragglers` measures the guard.
All random numbers are seeded. A case counts as found if the diagnosis names a true cause and the instances of its scope
are the true instances.
"""

from __future__ import annotations

import gc
import json
import random
import statistics
import time
from typing import Any

from gpu_recovery.core.diagnosis.case import History, Topology, Worker
from gpu_recovery.core.diagnosis.catalogue import FAMILIES
from gpu_recovery.core.diagnosis.diagnose import Diagnosis, diagnose
from gpu_recovery.core.diagnosis.observations import (
    CallTiming,
    Delivery,
    EventReport,
    FlightReport,
    LockReport,
    LockState,
    LogFinding,
    NcclReport,
    Observation,
    PairReport,
    ProgressReport,
    RequestReport,
    RequestState,
    RpcReport,
    RpcStage,
    StageReport,
    WeightSyncReport,
    WorkerHealth,
    XidReport,
)
from gpu_recovery.core.diagnosis.taxonomy import Cause, Scope, ScopeKind

from benchmarks.fault_cases.case import AT_S, TOPOLOGY, FaultCase
from benchmarks.fault_cases.catalogue import fault_cases

WORKERS, PER_NODE, ROUNDS = 1_024, 8, 5
"""Workers of the window, workers of an instance, and runs of which the median is taken."""
NOISE = 0.05
"""Standard deviation of the log-normal noise of the window."""
NO_INSTANCE = History()


def instances_of(scope: Scope, topology: Topology) -> frozenset[str]:
    """Return the instances of a scope. The set is empty if the scope is the job as a whole."""
    if scope.kind is ScopeKind.INSTANCE:
        return frozenset(scope.names)
    if scope.kind is ScopeKind.GPU:
        return frozenset(instance for instance in topology.instances for name in scope.names if instance in name)
    instances = set()
    for worker in topology.workers.values():
        name_in_scope = {
            ScopeKind.WORKER: worker.name,
            ScopeKind.RANK: str(worker.rank),
            ScopeKind.RACK: worker.rack,
        }.get(scope.kind)
        if name_in_scope in scope.names:
            instances.add(worker.instance_id)
    return frozenset(instances)


def is_found(case: FaultCase, cause: Cause, scope: Scope) -> bool:
    """Return whether `cause` is a true cause of the case and `scope` has the true instances."""
    return cause in case.causes and instances_of(scope, TOPOLOGY) == case.instances


def fault_figures() -> dict[str, Any]:
    """Diagnose all injected faults.

    Returns:
        For all cases and for each family: the number of cases, of cases found first, and of cases found among the first
        three results. Also the names of missed cases, the families without rules, and the median processor time of a
        case in milliseconds. The scoreboard says which of the results are decided.
    """
    figures: dict[str, Any] = {}
    missed = []
    taken = []
    for case in fault_cases():
        began = time.process_time()
        verdict = diagnose(case.reports, TOPOLOGY, NO_INSTANCE, AT_S)
        taken.append(time.process_time() - began)
        first, three = found_at(case, verdict)
        for score in (figures.setdefault("all", _no_score()), figures.setdefault(case.family, _no_score())):
            score["cases"] += 1
            score["first"] += first
            score["first_three"] += three
        if not first:
            missed.append(f"{case.name}: {verdict.cause} at {verdict.scope}")
    without = [family.__name__.rpartition(".")[2] for family in FAMILIES if not family.RULES]
    ms = round(statistics.median(taken) * 1e3, 2)
    return figures | {"missed": missed, "families_without_rules": without, "median_ms": ms}


def _no_score() -> dict[str, int]:
    return {"cases": 0, "first": 0, "first_three": 0}


def found_at(case: FaultCase, verdict: Diagnosis) -> tuple[bool, bool]:
    """Return whether the case is found first, and whether it is found among the first three results."""
    first = is_found(case, verdict.cause, verdict.scope)
    return first, first or any(is_found(case, rival.cause, rival.scope) for rival in verdict.rivals[:2])


def window(workers: int = WORKERS) -> tuple[list[Observation], Topology]:
    """Return a window of observations in which rank 77 is lost and all others wait, and the topology of the workers.

    The other workers have every kind of observation that a worker may have.
    """
    drawn = random.Random(workers)
    topology = Topology.of(Worker(f"w{n}", f"n{n // PER_NODE}", f"r{n // PER_NODE // 16}", n) for n in range(workers))
    reports: list[Observation] = []
    for n in range(workers):
        reports += _of_worker(n, n == 77 % workers, workers, drawn)
    nodes = sorted(topology.instances)
    reports += [
        PairReport(report_id=f"pair-{left}", at_s=AT_S, round=1, instances=(left, right), passed=True, seconds=1.0)
        for left, right in zip(nodes[0::2], nodes[1::2], strict=False)
    ]
    reports.append(XidReport(report_id="xid", at_s=AT_S - 650, rank=77 % workers, xid=79, asks="REBOOT", gpu="5"))
    return reports, topology


def _of_worker(n: int, lost: bool, workers: int, drawn: random.Random) -> list[Observation]:
    identity: dict[str, Any] = {"worker": f"w{n}", "rank": n, "instance_id": f"n{n // PER_NODE}"}
    noise = drawn.lognormvariate(0, NOISE)
    group = tuple(range(n - n % PER_NODE, n - n % PER_NODE + PER_NODE))
    made: list[Observation] = [
        RpcReport(
            report_id=f"rpc-{n}",
            at_s=AT_S - 10,
            request_id=f"q{n}",
            connect_s=0.1 * noise,
            failed_at=RpcStage.HEADER,
            timed_out=True,
            **identity,
        ),
        RequestReport(
            report_id=f"start-{n}", at_s=AT_S - 620, request_id=f"q{n}", state=RequestState.START, **identity
        ),
        WeightSyncReport(report_id=f"sync-{n}", at_s=AT_S - 700, upload_s=9 * noise, download_s=8 * noise, **identity),
        StageReport(report_id=f"stage-{n}", at_s=AT_S - 690, stage="rollout", corrected=0, uncorrected=0, **identity),
        EventReport(
            report_id=f"event-{n}",
            at_s=AT_S - 695,
            request_id=f"e{n}",
            event="rollout_start",
            state=Delivery.ACKNOWLEDGED,
            last_state=Delivery.ACKNOWLEDGED,
            gpu_state="ready",
            **identity,
        ),
        LockReport(
            report_id=f"lock-{n}", at_s=AT_S - 696, lock=f"gpu-{n}", owner="train", state=LockState.RELEASED, **identity
        ),
        FlightReport(
            report_id=f"flight-{n}",
            at_s=AT_S,
            group=f"tp{group[0]}",
            members=group,
            last_enqueued=9 if lost else 10,
            last_completed=9,
            **identity,
        ),
    ]
    if not lost:
        line = "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=10) ran for 600060 milliseconds"
        made += [
            LogFinding(
                report_id=f"log-{n}", at_s=AT_S - 20, line=line, kind="collective_timeout", role="cascade", **identity
            ),
            NcclReport(report_id=f"nccl-{n}", at_s=AT_S - 20, line=line, **identity),
        ]
    made += [
        WorkerHealth(
            report_id=f"health-{n}-{k}", at_s=AT_S - 10 * k, memory_free_gb=9 * noise, cpu_percent=50.0, **identity
        )
        for k in range(3)
    ]
    made += [ProgressReport(report_id=f"beat-{n}-{k}", at_s=AT_S - 5 * k, value=7.0, **identity) for k in range(6)]
    made += [
        CallTiming(
            report_id=f"call-{n}-{k}", at_s=AT_S - 700 - k, method=method, seconds=noise, stage=n % 4, **identity
        )
        for k, method in enumerate(("train", "rollout", "save"))
    ]
    return made


def window_figures(workers: int = WORKERS) -> dict[str, Any]:
    """Diagnose the window and return the median processor time in seconds, the size of the window and the result."""
    reports, topology = window(workers)
    taken = []
    for _ in range(ROUNDS):
        gc.collect()
        began = time.process_time()
        verdict = diagnose(reports, topology, NO_INSTANCE, AT_S)
        taken.append(time.process_time() - began)
    return {
        "workers": workers,
        "reports": len(reports),
        "seconds": round(statistics.median(taken), 3),
        "verdict": f"{verdict.cause} at {verdict.scope}",
        "findings_that_only_say_something": len(verdict.informational),
    }


def diagnosis_figures() -> dict[str, Any]:
    """Return the figures for injected faults and the window."""
    return {"faults": fault_figures(), "window": window_figures()}


if __name__ == "__main__":
    print(json.dumps(diagnosis_figures(), indent=2))
