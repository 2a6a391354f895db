"""How good and how fast the diagnosis is: stragglers, injected faults, and a window of 1,024 workers.

Everything is seeded. A case counts as found if its cause is named at its place: the instances of the verdict's scope
are those of the truth.
"""

from __future__ import annotations

import gc
import json
import random
import statistics
import time
from collections.abc import Iterable
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
from gpu_recovery.core.diagnosis.outliers import beyond_guard, beyond_sigma
from gpu_recovery.core.diagnosis.taxonomy import Cause, Scope, ScopeKind
from gpu_recovery.core.diagnosis.thresholds import Thresholds

from benchmarks.fault_cases.case import AT_S, TOPOLOGY, FaultCase
from benchmarks.fault_cases.catalogue import fault_cases

BY = Thresholds()
SIZES = (4, 5, 6, 8, 12, 16, 32, 64, 128, 256)
WINDOWS = 2_000
NOISE, SLOW = 0.05, 1.5
"""Log-normal noise of five per cent; a straggler takes half as long again."""
WORKERS, PER_NODE, ROUNDS = 1_024, 8, 5
NO_INSTANCE = History()


def straggler_rates(windows: int = WINDOWS, sizes: Iterable[int] = SIZES) -> dict[str, dict[str, float]]:
    """By number of workers, per cent of windows: false alarms, one straggler found, both of two found."""
    return {f"{count}_workers": _rates(count, windows) for count in sizes}


def _rates(count: int, windows: int) -> dict[str, float]:
    drawn = random.Random(count)
    hits = dict.fromkeys(
        (f"{rule}_{what}" for what in ("false_alarms", "one_found", "two_found") for rule in ("two_sigma", "guard")), 0
    )
    for _ in range(windows):
        for what, slow in (("false_alarms", 0), ("one_found", 1), ("two_found", 2)):
            values = {f"w{n}": drawn.lognormvariate(0, NOISE) * (SLOW if n < slow else 1.0) for n in range(count)}
            truth = {f"w{n}" for n in range(slow)}
            for rule, found in (
                ("two_sigma", beyond_sigma(values, BY.sigma)),
                ("guard", beyond_guard(values, BY)),
            ):
                hits[f"{rule}_{what}"] += bool(found) if not slow else truth <= set(found)
    return {name: round(100 * times / windows, 2) for name, times in hits.items()}


def instances_of(scope: Scope, topology: Topology) -> frozenset[str]:
    """The instances that a scope is on; none for the job as a whole."""
    if scope.kind is ScopeKind.INSTANCE:
        return frozenset(scope.names)
    if scope.kind is ScopeKind.GPU:
        return frozenset(one for one in topology.instances for name in scope.names if one in name)
    found = set()
    for one in topology.workers.values():
        of = {ScopeKind.WORKER: one.name, ScopeKind.RANK: str(one.rank), ScopeKind.RACK: one.rack}.get(scope.kind)
        if of in scope.names:
            found.add(one.instance_id)
    return frozenset(found)


def is_found(case: FaultCase, cause: Cause, scope: Scope) -> bool:
    """Whether this is the case's cause, at its place."""
    return cause in case.causes and instances_of(scope, TOPOLOGY) == case.instances


def fault_figures() -> dict[str, Any]:
    """Of all injected faults and by family: how many, found first, found among the first three; milliseconds each."""
    figures: dict[str, Any] = {}
    missed = []
    taken = []
    for case in fault_cases():
        began = time.process_time()
        verdict = diagnose(case.reports, TOPOLOGY, NO_INSTANCE, AT_S)
        taken.append(time.process_time() - began)
        first, three = found_at(case, verdict)
        for of in (figures.setdefault("all", _no_score()), figures.setdefault(case.family, _no_score())):
            of["cases"] += 1
            of["first"] += first
            of["first_three"] += three
            of["decided_wrongly"] += verdict.decided and not first
        if not first:
            missed.append(f"{case.name}: {verdict.cause} at {verdict.scope}")
    without = [family.__name__.rpartition(".")[2] for family in FAMILIES if not family.RULES]
    ms = round(statistics.median(taken) * 1e3, 2)
    return figures | {"missed": missed, "families_without_rules": without, "median_ms": ms}


def _no_score() -> dict[str, int]:
    return {"cases": 0, "first": 0, "first_three": 0, "decided_wrongly": 0}


def found_at(case: FaultCase, verdict: Diagnosis) -> tuple[bool, bool]:
    """Whether the truth is the verdict, and whether it is that or one of the next two."""
    first = is_found(case, verdict.cause, verdict.scope)
    return first, first or any(is_found(case, one.cause, one.scope) for one in verdict.rivals[:2])


def window(workers: int = WORKERS) -> tuple[list[Observation], Topology]:
    """The window of a run whose rank 77 is lost, so that all others wait: every kind of report from every worker."""
    drawn = random.Random(workers)
    topology = Topology.of(Worker(f"w{n}", f"n{n // PER_NODE}", f"r{n // PER_NODE // 16}", n) for n in range(workers))
    reports: list[Observation] = []
    for n in range(workers):
        reports += _of_worker(n, n == 77 % workers, workers, drawn)
    nodes = sorted(topology.instances)
    reports += [
        PairReport(report_id=f"pair-{one}", at_s=AT_S, round=1, instances=(one, other), passed=True, seconds=1.0)
        for one, other in zip(nodes[0::2], nodes[1::2], strict=False)
    ]
    reports.append(XidReport(report_id="xid", at_s=AT_S - 650, rank=77 % workers, xid=79, asks="REBOOT", gpu="5"))
    return reports, topology


def _of_worker(n: int, lost: bool, workers: int, drawn: random.Random) -> list[Observation]:
    who: dict[str, Any] = {"worker": f"w{n}", "rank": n, "instance_id": f"n{n // PER_NODE}"}
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
            **who,
        ),
        RequestReport(report_id=f"start-{n}", at_s=AT_S - 620, request_id=f"q{n}", state=RequestState.START, **who),
        WeightSyncReport(report_id=f"sync-{n}", at_s=AT_S - 700, upload_s=9 * noise, download_s=8 * noise, **who),
        StageReport(report_id=f"stage-{n}", at_s=AT_S - 690, stage="rollout", corrected=0, uncorrected=0, **who),
        EventReport(
            report_id=f"event-{n}",
            at_s=AT_S - 695,
            request_id=f"e{n}",
            event="rollout_start",
            state=Delivery.ACKNOWLEDGED,
            last_state=Delivery.ACKNOWLEDGED,
            gpu_state="ready",
            **who,
        ),
        LockReport(
            report_id=f"lock-{n}", at_s=AT_S - 696, lock=f"gpu-{n}", owner="train", state=LockState.RELEASED, **who
        ),
        FlightReport(
            report_id=f"flight-{n}",
            at_s=AT_S,
            group=f"tp{group[0]}",
            members=group,
            last_enqueued=9 if lost else 10,
            last_completed=9,
            **who,
        ),
    ]
    if not lost:
        line = "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=10) ran for 600060 milliseconds"
        made += [
            LogFinding(
                report_id=f"log-{n}", at_s=AT_S - 20, line=line, kind="collective_timeout", role="cascade", **who
            ),
            NcclReport(report_id=f"nccl-{n}", at_s=AT_S - 20, line=line, **who),
        ]
    made += [
        WorkerHealth(report_id=f"health-{n}-{k}", at_s=AT_S - 10 * k, memory_free_gb=9 * noise, cpu_percent=50.0, **who)
        for k in range(3)
    ]
    made += [ProgressReport(report_id=f"beat-{n}-{k}", at_s=AT_S - 5 * k, value=7.0, **who) for k in range(6)]
    made += [
        CallTiming(report_id=f"call-{n}-{k}", at_s=AT_S - 700 - k, method=method, seconds=noise, stage=n % 4, **who)
        for k, method in enumerate(("train", "rollout", "save"))
    ]
    return made


def window_figures(workers: int = WORKERS) -> dict[str, Any]:
    """Seconds of processor time that the window of 1,024 workers takes, in the median, and what it says."""
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


def diagnosing_figures() -> dict[str, Any]:
    """Everything that is measured of the diagnosis."""
    return {"stragglers": straggler_rates(), "faults": fault_figures(), "window": window_figures()}


if __name__ == "__main__":
    print(json.dumps(diagnosing_figures(), indent=2))
