"""What the preflight of a gang says about its instances: proofs, differences, and steps that say nothing."""

from __future__ import annotations

from typing import Any

import pytest
from gpu_recovery.core.diagnosis.observations import ExitReport, PreflightReport, PreflightStep, StepResult
from gpu_recovery.core.diagnosis.preflight import differences, newest, proof_of
from gpu_recovery.core.diagnosis.rules import preflights
from gpu_recovery.core.diagnosis.taxonomy import Cause, Remedy

from tests.core.diagnosis.small_cases import AT_S, cluster, found_by, judged, rows

PASSED, FAILED, NOT_RUN, INCONCLUSIVE = StepResult


def report(node: int, at_s: float = AT_S - 60, **steps: Any) -> PreflightReport:
    """The report of a rank: each step with its result, or with its result and its value."""
    each = [
        PreflightStep(name, *(one if isinstance(one, tuple) else (one,))[:1], sentence="so", value=_value(one))
        for name, one in steps.items()
    ]
    return PreflightReport(
        report_id=f"n{node}/p{at_s}", at_s=at_s, instance_id=f"n{node}", rank=node, steps=tuple(each)
    )


def _value(one: Any) -> float | None:
    return one[1] if isinstance(one, tuple) else None


def apart(*reports: PreflightReport) -> set[str]:
    return set(differences(newest(reports)))


@pytest.mark.parametrize("step", ["gpu_count", "recovery_action", "nccl_loopback"])
def test_a_failed_step_that_proves_a_fault_decides(step: str) -> None:
    """The instance is checked, although the exit code alone would blame the program."""
    sick = report(1, **{step: FAILED})
    end = ExitReport(report_id="exit/1", at_s=AT_S - 50, instance_id="n1", rank=1, code=76)
    found = judged([report(0, gpu_count=PASSED), sick, end], cluster(4, 1))
    assert (found.cause, found.remedy, found.decided) == (Cause.GPU_FAULT, Remedy.CHECK, True)
    assert found.scope.names == ("n1",) and sick.report_id in found.evidence
    alone = judged([report(0, gpu_count=PASSED), end], cluster(4, 1))
    assert not alone.decided


@pytest.mark.parametrize("result", [NOT_RUN, INCONCLUSIVE, PASSED])
def test_no_other_result_of_such_a_step_is_a_proof(result: StepResult) -> None:
    """Nor does a failed step that proves nothing decide."""
    assert proof_of(report(0, gpu_count=result, dcgm_level_1=FAILED, rdma_devices=FAILED)) is None
    found = judged([report(0, gpu_count=PASSED), report(1, gpu_count=result, dcgm_level_1=FAILED)], cluster(2, 1))
    assert not found.decided


@pytest.mark.parametrize("result", [FAILED, INCONCLUSIVE])
def test_an_instance_is_apart_if_the_step_passed_on_the_others(result: StepResult) -> None:
    """Everywhere alike, it comes from the image. A step that was not run on the others has not passed there."""
    odd = report(0, dcgm_level_1=result)
    passed = [report(node, dcgm_level_1=PASSED) for node in (1, 2, 3)]
    assert apart(odd, *passed) == {"n0"}
    assert apart(odd, passed[0]) == {"n0"}
    assert apart(odd) == set()
    assert apart(odd, *(report(node, dcgm_level_1=result) for node in (1, 2, 3))) == set()
    assert apart(odd, *(report(node, dcgm_level_1=NOT_RUN) for node in (1, 2, 3))) == set()
    assert apart(odd, passed[0], *(report(node, dcgm_level_1=NOT_RUN) for node in (2, 3))) == set()


def test_a_step_that_was_not_run_sets_no_instance_apart() -> None:
    """It is no result."""
    others = [report(node, nccl_loopback=PASSED) for node in (1, 2, 3)]
    assert apart(report(0, nccl_loopback=NOT_RUN), *others) == set()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((16, 16, 15, 16), {"n2"}),
        ((16, 16, 17, 16), set()),
        ((16, 15), set()),
        ((16, 16, 15, 15), set()),
        ((0, 0, 0, 0), set()),
        ((32, 31, 30, 32, 32), {"n1", "n2"}),
    ],
)
def test_fewer_rdma_devices_than_most_of_the_gang_set_an_instance_apart(
    values: tuple[int, ...], expected: set[str]
) -> None:
    """No expected number is needed, so the step itself was not run."""
    reports = [report(node, rdma_devices=(NOT_RUN, float(value))) for node, value in enumerate(values)]
    assert apart(*reports) == expected
    found = found_by(preflights.RULES, reports)
    assert {one.cause for one in found} == ({Cause.RDMA} if expected else set())


@pytest.mark.parametrize(
    ("values", "expected"), [((400, 410, 150, 405), {"n2"}), ((400, 410, 350, 405), set()), ((400, 150), set())]
)
def test_a_slow_all_reduce_sets_an_instance_apart(values: tuple[float, ...], expected: set[str]) -> None:
    """Slow means less than half of the median. Two instances do not show which of them is slow."""
    assert apart(*(report(node, nccl_loopback=(PASSED, value)) for node, value in enumerate(values))) == expected


def test_the_newest_report_of_an_instance_counts() -> None:
    """A restart in place tests again. A report about another instance is not its own."""
    old, new = report(1, at_s=AT_S - 90, gpu_count=FAILED), report(1, gpu_count=PASSED)
    assert newest([new, old])["n1"] is new
    assert newest([new, report(2, gpu_count=PASSED)], ["n2"]).keys() == {"n2"}
    nowhere = PreflightReport(report_id="x", at_s=AT_S, steps=())
    assert newest([nowhere]) == {}


def test_a_difference_alone_decides_nothing() -> None:
    """It supports the cause at its place, and the proof of another instance decides."""
    reports = [report(0, nccl_loopback=INCONCLUSIVE), *(report(node, nccl_loopback=PASSED) for node in (1, 2, 3))]
    assert rows(found_by(preflights.RULES, reports)) == {"preflight-apart"}
    assert not judged(reports, cluster(4, 1)).decided
    found = judged([*reports, report(3, at_s=AT_S - 10, gpu_count=FAILED)], cluster(4, 1))
    assert found.decided and found.scope.names == ("n3",)
