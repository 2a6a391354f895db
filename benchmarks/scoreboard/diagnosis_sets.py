"""Sets of cases that end in a diagnosis: log lines, injected faults, live programs, and published dumps and traces.

No remedy of a diagnosis reboots or replaces an instance. So these sets have no wrongful repairs. A GPU fault counts as
missed if a decided diagnosis orders no check of the instance. After an undecided diagnosis all instances are checked.
"""

from __future__ import annotations

import io
import sys
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from gpu_recovery.core.diagnosis.case import Topology
from gpu_recovery.core.diagnosis.diagnose import Diagnosis, diagnose
from gpu_recovery.core.diagnosis.taxonomy import Cause, Remedy
from gpu_recovery.core.logs.classify import classify
from gpu_recovery.core.logs.kinds import CLASSES, LineKind, LogClass
from gpu_recovery_client.cli.flight_folder import diagnose_folder

from benchmarks.diagnosis import NO_INSTANCE, instances_of, is_found
from benchmarks.fault_cases.case import AT_S, TOPOLOGY
from benchmarks.fault_cases.catalogue import fault_cases
from benchmarks.log_kinds import ROOT
from benchmarks.scoreboard.score import CaseResult, Verdict, verdict_of
from tests.agent.flight_recorder import dumps
from tests.core.diagnosis.rules.test_stragglers import replayed
from tests.core.diagnosis.small_cases import cluster, judged
from tests.core.logs.failed_gangs import found_in
from tests.execution.live_gang import live_gang
from tests.execution.test_seed_002_rows import QUIET, ROWS, Quiet, Row
from tests.lambdas.conftest import every_function

GPU_KINDS = frozenset(kind for kind in LineKind if kind.startswith("hardware_"))
"""Labels of lines that report a fault of a GPU."""
RIGHT_CAUSES: Mapping[LogClass, frozenset[Cause]] = {
    LogClass.RESOURCES: frozenset({Cause.RESOURCES}),
    LogClass.USER: frozenset({Cause.APPLICATION, Cause.CONFIGURATION}),
    LogClass.RUNTIME: frozenset(
        {
            Cause.APPLICATION,
            Cause.CONFIGURATION,
            Cause.GPU_CONTEXT,
            Cause.GPU_MEMORY,
            Cause.HOST_MEMORY,
            Cause.WORKER_CRASH,
            Cause.WORKER_STARTUP,
        }
    ),
    LogClass.UNKNOWN: frozenset({Cause.WORKER_CRASH, Cause.HOST_MEMORY}),
    LogClass.HARDWARE: frozenset({Cause.GPU_FAULT, Cause.NODE_FAULT}),
    LogClass.CASCADE: frozenset({Cause.GPU_FAULT, Cause.NETWORK, Cause.WORKER_HANG}),
    LogClass.NETWORK: frozenset({Cause.NETWORK, Cause.RDMA, Cause.WORKER_HANG, Cause.WORKER_CRASH}),
    LogClass.EXTERNAL: frozenset({Cause.EXTERNAL, Cause.CONFIGURATION}),
    LogClass.STORAGE: frozenset({Cause.STORAGE}),
    LogClass.STORAGE_RESOURCES: frozenset({Cause.STORAGE}),
    LogClass.ENVIRONMENT: frozenset({Cause.DRIVER, Cause.CONFIGURATION}),
    LogClass.NUMERICAL: frozenset({Cause.NUMERICAL, Cause.APPLICATION}),
    LogClass.SCHEDULER: frozenset({Cause.PREEMPTED, Cause.CONFIGURATION}),
    LogClass.NONE: frozenset(),
}
"""The causes that are right for a line with a label of each class. A decided diagnosis of a benign line is wrong."""
SLOW_TRACES: Mapping[str, tuple[frozenset[Cause], frozenset[str], Topology]] = {
    "AR": (frozenset({Cause.STRAGGLER}), frozenset({"n0"}), cluster(4, 4)),
    "SE": (frozenset({Cause.UNEVEN_STAGE}), frozenset(), cluster(8, 8)),
    "ST": (frozenset({Cause.UNEVEN_STAGE}), frozenset(), cluster(2, 4)),
}
"""Truth of the three traces of ByteDance's StragglerAnalysis: causes, instances, and where their ranks are placed.

AR has one slow worker. SE has uneven sequences and an uneven stage, ST a long last stage: no worker is slow.
"""
SLOW_CALLS = (1, 4, 10)
"""Calls of each rank of a window that is cut from a trace."""


def line_results(rows: Iterable[Mapping[str, str]]) -> Iterator[CaseResult]:
    """Classify each line alone, and diagnose a gang in which one rank wrote this line and nothing else."""
    for row in rows:
        kind, label = classify([row["line"]]).kind, LineKind(row["kind"])
        found = found_in({1: [row["line"]]})
        benign = label is LineKind.BENIGN
        verdict = verdict_of(found.decided, found.cause in RIGHT_CAUSES[CLASSES[label]])
        yield CaseResult(
            kind_is_right=kind == label,
            false_alarm=kind != label if benign else None,
            # Where nothing has failed, no decided verdict is the right verdict.
            verdict=Verdict.RIGHT if benign and not found.decided else verdict,
            missed=_missed(found, {"i-1"}, found.scope.names) if label in GPU_KINDS else None,
        )


def _missed(found: Diagnosis, faulty: Collection[str], blamed: Iterable[str]) -> bool:
    """Return whether the diagnosis is decided and orders no check of the faulty instances."""
    return found.decided and (found.remedy is not Remedy.CHECK or not set(faulty) <= set(blamed))


def fault_results() -> Iterator[CaseResult]:
    """Diagnose each injected fault."""
    for case in fault_cases():
        found = diagnose(case.reports, TOPOLOGY, NO_INSTANCE, AT_S)
        yield CaseResult(
            verdict=verdict_of(found.decided, is_found(case, found.cause, found.scope)),
            missed=_missed(found, case.instances, instances_of(found.scope, TOPOLOGY))
            if Cause.GPU_FAULT in case.causes
            else None,
        )


def live_results() -> Iterator[CaseResult]:
    """Let programs in a live gang do what the rows of seed 002 describe, and ask the API for its diagnosis.

    Rows that only note something have no true cause and are left out. In the quiet cases a certain cause is wrong.
    """
    cases: list[Row | Quiet] = [*ROWS, *QUIET.values()]
    for case in (each for each in cases if each.cause):
        yield _live(case)


def _live(case: Row | Quiet) -> CaseResult:
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(sys, "path", [str(ROOT / "lambdas"), *sys.path])
        gang_options: dict[str, Any] = {"world": case.world, "racks": case.racks}
        # The programs and functions write their log lines to the standard streams.
        stack.enter_context(redirect_stdout(io.StringIO()))
        stack.enter_context(redirect_stderr(io.StringIO()))
        with every_function(patch) as functions, live_gang(functions, Path(folder), patch, **gang_options) as gang:
            case.act(gang)
            found = gang.verdict()
            faulty = gang.plan.instances[1]
    decided, same = found["decided"], found["cause"] == case.cause
    if isinstance(case, Quiet):
        return CaseResult(verdict=Verdict.WRONG if decided and same else Verdict.RIGHT)
    missed = None
    if case.cause == Cause.GPU_FAULT:  # the act is of the process with rank 1
        missed = decided and (
            found["remedy"] != Remedy.CHECK or not any(faulty in one for one in found["scope"]["names"])
        )
    return CaseResult(verdict=verdict_of(decided, same), missed=missed)


def flight_results() -> Iterator[CaseResult]:
    """Diagnose the published dumps of the flight recorder, as `gpu-recovery diagnose --flight` does."""
    for name, faulty in dumps.TRUTH.items():
        with tempfile.TemporaryDirectory() as path:
            found = diagnose_folder(dumps.write(Path(path) / "dumps", dumps.trace(name), "_dump_"))
        named = {int(rank) for rank in found["scope"]["names"]}
        right = bool(named) and named <= faulty and found["cause"] == Cause.WORKER_HANG
        missed = found["decided"] and not (right and found["remedy"] == Remedy.CHECK)
        yield CaseResult(
            verdict=verdict_of(found["decided"], right), missed=missed if name.startswith("gpu_error") else None
        )


def straggler_results() -> Iterator[CaseResult]:
    """Diagnose windows of the published traces of slow ranks, with and without the stage of each rank."""
    for name, (causes, instances, topology) in SLOW_TRACES.items():
        for calls in SLOW_CALLS:
            for with_stage in (True, False):
                found = judged(replayed(name, calls, with_stage), topology)
                right = found.cause in causes and instances_of(found.scope, topology) == instances
                yield CaseResult(verdict=verdict_of(found.decided, right))
