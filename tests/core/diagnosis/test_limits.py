"""Limits at which functions of the diagnosis change their answer: the value at the limit, and the next one."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from gpu_recovery.core.diagnosis.case import Case, History, Topology, finite
from gpu_recovery.core.diagnosis.diagnose import diagnose
from gpu_recovery.core.diagnosis.failure_pattern import pattern
from gpu_recovery.core.diagnosis.hypothesis import Hypothesis
from gpu_recovery.core.diagnosis.observations import ExitReport, RpcReport, RpcStage
from gpu_recovery.core.diagnosis.probes import Probe, next_probe
from gpu_recovery.core.diagnosis.report_text import EVIDENCE_MAX, report_text
from gpu_recovery.core.diagnosis.rule import RuleFinding
from gpu_recovery.core.diagnosis.rules.instances import signal_of
from gpu_recovery.core.diagnosis.taxonomy import Cause, Scope, ScopeKind
from gpu_recovery.core.diagnosis.thresholds import Thresholds

from tests.core.diagnosis.small_cases import cluster

CALL = RpcReport(report_id="r", at_s=1.0, instance_id="i-1", worker="w1", failed_at=RpcStage.HEADER, timed_out=True)
SCOPE = Scope(ScopeKind.JOB)


def finding(number: int) -> RuleFinding:
    """A finding for a GPU fault."""
    return RuleFinding(
        f"{number}", Cause.GPU_FAULT, SCOPE, 1.0, False, f"said {number}", f"说 {number}", (f"r{number}",)
    )


def hypothesis(cause: Cause) -> Hypothesis:
    """A possible cause without findings."""
    return Hypothesis(cause, SCOPE, 1.0, 0.5, False, ())


@pytest.mark.parametrize(("wrong", "told"), [(math.nan, 0.0), (math.inf, 0.0), (3.0, 3.0)])
def test_a_time_that_is_no_number_counts_as_zero(wrong: float, told: float) -> None:
    """The field may not be empty; a number stays."""
    assert finite(replace(CALL, at_s=wrong)).at_s == told


@pytest.mark.parametrize(("workers", "failed"), [(1, False), (2, True)])
def test_all_workers_failed_only_if_there_are_several(workers: int, failed: bool) -> None:
    """The only worker of a run says nothing about the others."""
    topology = cluster(nodes=1, workers=workers, racks=1)
    assert bool(pattern(tuple(topology.workers), topology, 0.5).all_failed) is failed


@pytest.mark.parametrize(
    ("signal", "code", "told"),
    [(0, 137, 9), (1, None, 1), (None, 137, 9), (None, -9, 9), (None, -64, 64), (None, -65, None), (None, 0, None)],
)
def test_a_signal_of_zero_is_no_signal(signal: int | None, code: int | None, told: int | None) -> None:
    """The exit code then tells the signal: 128 and more by the shell, negative by Python."""
    assert signal_of(ExitReport(report_id="r", at_s=1.0, signal=signal, code=code)) == told


def test_a_probe_parts_the_first_two_causes_whatever_comes_after_them() -> None:
    """A third cause changes nothing."""
    ranked = [hypothesis(cause) for cause in (Cause.NETWORK, Cause.DRIVER, Cause.APPLICATION)]
    case = Case((), Topology(), History(), 0.0, Thresholds())
    assert next_probe(ranked, case) is next_probe(ranked[:2], case)
    assert next_probe(ranked, case) in Probe


def test_a_page_counts_the_findings_that_it_leaves_out_and_names_rivals_only_if_there_are_any() -> None:
    """The heading of an empty list would puzzle its reader."""
    found = diagnose([CALL], Topology(), History(), 10.0)
    many = replace(found, findings=tuple(finding(n) for n in range(EVIDENCE_MAX + 2)), rivals=())
    page = report_text(many)
    assert "\n  - +2\n" in page and page.count("said ") == EVIDENCE_MAX
    assert "Not ruled out" not in page
    rival = replace(many, rivals=(hypothesis(Cause.NETWORK),))
    assert len(report_text(rival).splitlines()) == len(page.splitlines()) + 2
