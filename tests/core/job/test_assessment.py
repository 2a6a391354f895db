"""What a failure is stopped for, and what the checks that follow make of the job, under the adaptive policy."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gpu_recovery.core.diagnosis.taxonomy import Cause, Remedy
from gpu_recovery.core.events import Checked
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.job.assessment import assess, purpose_of
from gpu_recovery.core.job.diagnosis_result import DiagnosisResult
from gpu_recovery.core.job.record import CloseCause, JobStatus, StopPurpose
from gpu_recovery.core.job.recovering import after_checks
from gpu_recovery.core.state_machine import DecisionContext
from gpu_recovery.core.task import PREFLIGHT_ENDED, EndingKind

from tests.core.build import ADAPTIVE, CLASSIC, IDS, NOW, diagnosing, failure, results

HEALTHY, REBOOT, REPLACE = CheckOutcome.HEALTHY, CheckOutcome.REBOOT, CheckOutcome.REPLACE
DIAGNOSE, RELAUNCH, FAIL, CANCEL = StopPurpose.DIAGNOSE, StopPurpose.RELAUNCH, StopPurpose.FAIL, StopPurpose.CANCEL
SHORT, INTERRUPTED = CloseCause.INSUFFICIENT_RESOURCES, CloseCause.INTERRUPTED


@pytest.mark.parametrize(
    ("kind", "adaptive", "classic"),
    [
        (EndingKind.FAILED, (DIAGNOSE, None), (DIAGNOSE, None)),
        (EndingKind.CRASHED, (DIAGNOSE, None), (FAIL, None)),
        (EndingKind.NEVER_STARTED, (DIAGNOSE, None), (FAIL, None)),
        (EndingKind.HOST_FAULT, (DIAGNOSE, None), (FAIL, None)),
        (EndingKind.INTERRUPTED, (RELAUNCH, INTERRUPTED), (FAIL, None)),
        (EndingKind.STOPPED_BY_US, (RELAUNCH, INTERRUPTED), (FAIL, None)),
        (EndingKind.SHORT_OF_RESOURCES, (RELAUNCH, SHORT), (RELAUNCH, SHORT)),
        (EndingKind.STOPPED_BY_PERSON, (CANCEL, None), (CANCEL, None)),
    ],
)
def test_each_kind_of_end_has_its_purpose(kind: EndingKind, adaptive: object, classic: object) -> None:
    """Evidence is sought where GPUs may be to blame; what nobody is to blame for is relaunched uncounted."""
    assert purpose_of(failure(kind), ADAPTIVE) == adaptive
    assert purpose_of(failure(kind), CLASSIC) == classic


@pytest.mark.parametrize("code", [1, 2, 42])
def test_any_non_zero_exit_is_checked(code: int) -> None:
    """Only seed 001 singles out the code 1."""
    assert purpose_of(failure(EndingKind.FAILED, code), ADAPTIVE)[0] is DIAGNOSE
    assert purpose_of(failure(EndingKind.FAILED, code), CLASSIC)[0] is (DIAGNOSE if code == 1 else FAIL)


def test_a_failed_preflight_is_checked_under_both_presets() -> None:
    """It is no exit of the program, to which the rule about the code 1 applies."""
    ended = failure(EndingKind.FAILED, 76)
    ended = replace(ended, ending=replace(ended.ending, sentence=f"{PREFLIGHT_ENDED} (exit code 76)"))
    assert purpose_of(ended, ADAPTIVE)[0] is DIAGNOSE and purpose_of(ended, CLASSIC)[0] is DIAGNOSE


def test_a_failed_preflight_leaves_its_instance_out_beside_that_of_the_diagnosis() -> None:
    """The checks found nothing, and the diagnosis suspects another instance. The next attempt uses both last."""
    ended = failure(EndingKind.FAILED, 76)
    ended = replace(ended, ending=replace(ended.ending, sentence=f"{PREFLIGHT_ENDED} (exit code 76)"))
    record = diagnosing(ended)
    hang = DiagnosisResult(
        record.attempt, Cause.WORKER_HANG, "instance", (IDS[1],), Remedy.LEAVE_OUT, 80, decided=True, sentence="silent"
    )
    record = replace(record, conclusion=hang)
    after = after_checks(record, results(HEALTHY, HEALTHY), DecisionContext(ADAPTIVE, NOW))
    assert after.status is JobStatus.RECOVERING and after.changes["left_out"] == {IDS[0]: 0, IDS[1]: 1}


@pytest.mark.parametrize("kind", [EndingKind.CRASHED, EndingKind.HOST_FAULT])
def test_a_crash_on_healthy_gpus_is_retried(kind: EndingKind) -> None:
    """A restart cures most of them, and says so."""
    verdict = assess(diagnosing(failure(kind)), results(HEALTHY, HEALTHY), ADAPTIVE)
    assert verdict.continues
    assert verdict.repairing == ()


@pytest.mark.parametrize("kind", [EndingKind.FAILED, EndingKind.NEVER_STARTED])
def test_an_application_error_on_healthy_gpus_fails_fast(kind: EndingKind) -> None:
    """It would end the same way again; the sentence names the rank and what it did."""
    verdict = assess(diagnosing(failure(kind)), results(HEALTHY, HEALTHY), ADAPTIVE)
    assert not verdict.continues
    assert f"rank 0 on {IDS[0]}" in verdict.reason


@pytest.mark.parametrize("kind", [EndingKind.FAILED, EndingKind.CRASHED])
@pytest.mark.parametrize("outcome", [REBOOT, REPLACE])
def test_evidence_against_an_instance_retries_whatever_the_exit(kind: EndingKind, outcome: CheckOutcome) -> None:
    """A sick GPU explains any exit code, and spare capacity will do even if it must be replaced."""
    verdict = assess(diagnosing(failure(kind)), results(HEALTHY, outcome), ADAPTIVE)
    assert verdict.continues
    assert verdict.repairing == ((IDS[1],) if outcome is REBOOT else ())


@pytest.mark.parametrize("outcome", [CheckOutcome.INCONCLUSIVE, CheckOutcome.CONFIGURATION])
def test_a_check_that_could_not_tell_is_no_evidence(outcome: CheckOutcome) -> None:
    """Then it is answered as on healthy GPUs: a crash is retried, an application error is not."""
    found = results(HEALTHY, outcome)
    assert assess(diagnosing(failure(EndingKind.CRASHED)), found, ADAPTIVE).continues
    assert not assess(diagnosing(failure(EndingKind.FAILED)), found, ADAPTIVE).continues


def test_an_instance_without_an_answer_is_named() -> None:
    """A check that never came in is neither a pass nor a fault."""
    verdict = assess(diagnosing(failure(EndingKind.CRASHED)), results(HEALTHY), ADAPTIVE)
    assert f"{IDS[0]}: HEALTHY" in verdict.reason
    assert f"{IDS[1]}: no answer" in verdict.reason


def test_the_last_attempt_is_not_retried_even_with_evidence() -> None:
    """The budget bounds what evidence may ask for."""
    record = replace(diagnosing(), attempts_counted=ADAPTIVE.attempts_max - 1)
    verdict = assess(record, results(HEALTHY, REBOOT), ADAPTIVE)
    assert not verdict.continues
    assert f"the last of {ADAPTIVE.attempts_max}" in verdict.reason


def test_the_jobs_own_limit_goes_before_the_policys() -> None:
    """Who submits a job knows how often it is worth trying."""
    record = diagnosing()
    once = replace(record, spec=replace(record.spec, attempts_max=1))
    assert not assess(once, results(HEALTHY, REBOOT), ADAPTIVE).continues


def test_a_repair_that_ended_before_the_barrier_is_not_waited_for() -> None:
    """The instance is back already: nothing to wait for; or it never comes back: classic has nothing to wait for."""
    found = results(HEALTHY, REBOOT)
    healed = replace(diagnosing(), repaired={IDS[1]: True})
    assert assess(healed, found, ADAPTIVE).repairing == ()
    assert assess(healed, found, CLASSIC).continues
    lost = replace(healed, repaired={IDS[1]: False})
    assert assess(lost, found, ADAPTIVE).continues
    assert not assess(lost, found, CLASSIC).continues


def test_classic_does_not_wait_for_an_instance_that_nobody_repairs() -> None:
    """It was blamed, but its reboot was refused."""
    assert not assess(diagnosing(), {**results(HEALTHY), IDS[1]: Checked(REBOOT, "bad", False)}, CLASSIC).continues
