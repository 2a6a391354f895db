"""The injected faults of the scoreboard, of calls, speeds and collectives: each is found, at its place."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gpu_recovery.core.diagnosis import failure_pattern
from gpu_recovery.core.diagnosis.case import Case, History
from gpu_recovery.core.diagnosis.diagnose import diagnose
from gpu_recovery.core.diagnosis.observations import FlightReport
from gpu_recovery.core.diagnosis.taxonomy import JOB, Cause, Scope, ScopeKind

from benchmarks.diagnosis import found_at, instances_of, window
from benchmarks.fault_cases.case import ALL, AT_S, TOPOLOGY, FaultCase, healthy
from benchmarks.fault_cases.catalogue import fault_cases
from tests.tiers import seeds

FAMILIES = {"rpc", "telemetry", "patterns", "stragglers", "weight_sync", "collectives"}
CASES = [case for case in fault_cases() if case.family in FAMILIES]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "-"))
def test_an_injected_fault_is_the_verdict(case: FaultCase) -> None:
    """Among healthy reports of everybody else."""
    verdict = diagnose(case.reports, TOPOLOGY, History(), AT_S)
    assert found_at(case, verdict) == (True, True), (verdict.cause, verdict.scope)


@pytest.mark.parametrize("seed", seeds(100, fast=10, default=40))
def test_without_a_fault_nothing_is_wrong(seed: int) -> None:
    """What the healthy ones report, with its noise, speaks for nobody."""
    reports = [replace(one, report_id=f"r{n}") for n, one in enumerate(healthy(ALL, seed))]
    assert diagnose(reports, TOPOLOGY, History(), AT_S).cause is Cause.UNKNOWN


def test_every_case_has_a_name_of_its_own_and_all_families_are_there() -> None:
    """Forty and more, over all families of the catalogue."""
    names = [case.name for case in fault_cases()]
    assert len(names) == len(set(names)) >= 40
    assert {case.family for case in fault_cases()} > FAMILIES


def test_a_scope_is_where_its_instances_are() -> None:
    """By worker, rank, rack and GPU; the job as a whole is nowhere in particular."""
    assert instances_of(Scope.of(ScopeKind.WORKER, "w0", "w5"), TOPOLOGY) == {"n0", "n1"}
    assert instances_of(Scope.of(ScopeKind.RANK, "15"), TOPOLOGY) == {"n3"}
    assert instances_of(Scope.of(ScopeKind.RACK, "r1"), TOPOLOGY) == {"n2", "n3"}
    assert instances_of(Scope.of(ScopeKind.GPU, "n1/2"), TOPOLOGY) == {"n1"}
    assert instances_of(JOB, TOPOLOGY) == frozenset()


def test_the_window_names_the_rank_that_is_lost() -> None:
    """All others wait, and their calls run out of time."""
    reports, topology = window(128)
    verdict = diagnose(reports, topology, History(), AT_S)
    assert "n9" in instances_of(verdict.scope, topology)
    assert any(isinstance(one, FlightReport) for one in reports if one.report_id in verdict.evidence)


def test_the_failed_calls_are_sorted_out_once_for_a_case(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many rules and workers ask for their place."""
    asked: list[Case] = []
    sort_out = failure_pattern._last_calls
    monkeypatch.setattr(failure_pattern, "_last_calls", lambda case: (asked.append(case), sort_out(case))[1])
    reports, topology = window(64)
    diagnose(reports, topology, History(), AT_S)
    assert len(asked) == 1
