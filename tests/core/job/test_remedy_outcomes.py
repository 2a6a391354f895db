"""Whether the remedy of a verdict held: labelled when an attempt after it lasts, ends well, or fails."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from gpu_recovery.core import events
from gpu_recovery.core.diagnosis.taxonomy import Cause, Remedy
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.job.diagnosis_result import DiagnosisResult, PastDiagnosis
from gpu_recovery.core.job.record import Job, JobStatus
from gpu_recovery.core.job.remedy_outcomes import DIAGNOSES_MAX, outcome_of
from gpu_recovery.core.metrics import of_decision
from gpu_recovery.core.policy import duration
from gpu_recovery.core.state_machine import Decision
from gpu_recovery.core.task import EndingKind

from tests.core import build

CRASHED = build.failure(EndingKind.CRASHED)
A, B = build.IDS
HANG = DiagnosisResult(1, Cause.WORKER_HANG, f"instance {A}", (A,), Remedy.LEAVE_OUT, 80, True, "no answer")
NETWORK = DiagnosisResult(1, Cause.NETWORK, "job", (), Remedy.RESTART, 80, True, "connection timed out")
GPU = DiagnosisResult(1, Cause.GPU_FAULT, f"gpu {B}/3", (B,), Remedy.CHECK, 90, True, "ECC errors increased")
STEADY = duration(build.ADAPTIVE.stable_run_s)
AGAIN = build.NOW + timedelta(hours=1)


def told(record: Job, event: Any, now: datetime) -> Decision[Job]:
    decision = build.tell(record, event, now=now)
    build.applied(decision)
    return decision


def diagnosed(record: Job, conclusion: DiagnosisResult, now: datetime = build.NOW) -> Decision[Job]:
    """What the job decides once its attempt is put down to that."""
    found = replace(conclusion, attempt=record.attempt)
    return told(record, events.Diagnosed(at=now, attempt=record.attempt, conclusion=found), now)


def going_on(verdict: DiagnosisResult) -> Job:
    """The next attempt of a job, running since AGAIN, after the verdict was acted upon."""
    record: Job = diagnosed(build.diagnosing(CRASHED), verdict).record
    if record.status is JobStatus.DIAGNOSING:
        found = build.results(CheckOutcome.HEALTHY, CheckOutcome.HEALTHY)
        record = build.applied(build.checked(record, found))
    assert record.status is JobStatus.RECOVERING and record.verdicts == ()
    return build.running(record=record, now=AGAIN)


def looked(record: Job, after: timedelta) -> Decision[Job]:
    """The look at a job whose attempt has run so long."""
    assert record.look_at is not None
    at = AGAIN + after
    return told(replace(record, look_at=at), events.JobLookDue(at=at, attempt=record.attempt, look_at=at), at)


def failing(record: Job, after: timedelta, rank: int = 0) -> Job:
    """The job once the attempt that ran so long has failed first at `rank`, and every rank of it has ended."""
    at = AGAIN + after
    first = replace(build.failure(EndingKind.CRASHED, rank=rank), at=at)
    return build.stopped(build.stopping(first, record=record, now=at), now=at)


def measured(before: Job, decision: Decision[Job]) -> list[str]:
    return [one.name for one in of_decision(before, decision) if one.name.startswith("Verdicts")]


@pytest.mark.parametrize("verdict", [HANG, NETWORK, GPU])
def test_a_remedy_has_held_once_an_attempt_after_it_has_lasted(verdict: DiagnosisResult) -> None:
    """Not before; it is measured once, however often the job is looked at."""
    record = going_on(verdict)
    assert looked(record, STEADY - timedelta(seconds=1)).record.verdicts == ()
    decision = looked(record, STEADY)
    assert decision.record.verdicts == (PastDiagnosis(1, verdict.cause, verdict.where, True),)
    assert measured(record, decision) == ["VerdictsHeld"]
    again = looked(decision.record, 2 * STEADY)
    assert again.record.verdicts == decision.record.verdicts and measured(decision.record, again) == []


def test_a_verdict_that_was_followed_only_after_the_checks_turns_out_as_well() -> None:
    """They had begun before it came; it decided once they had found nothing."""
    begun = replace(build.diagnosing(CRASHED), commands=())
    late = diagnosed(begun, NETWORK).record
    assert late.status is JobStatus.DIAGNOSING
    found = build.results(CheckOutcome.HEALTHY, CheckOutcome.HEALTHY)
    record = build.running(record=build.applied(build.checked(late, found)), now=AGAIN)
    assert looked(record, STEADY).record.verdicts == (PastDiagnosis(1, NETWORK.cause, NETWORK.where, True),)


def test_a_remedy_has_held_if_the_job_is_done_before_that() -> None:
    """A short job has nothing else to show."""
    record = going_on(HANG)
    decision = told(record, events.AllRanksStopped(at=AGAIN, attempt=2), AGAIN)
    assert (decision.record.status, decision.record.verdicts[0].held) == (JobStatus.SUCCEEDED, True)
    assert "VerdictsHeld" in measured(record, decision)


def test_a_job_that_is_canceled_says_nothing_of_its_verdict() -> None:
    """Nobody knows what would have become of it."""
    decision = told(going_on(HANG), events.CancelRequested(at=AGAIN, attempt=2, by="ada"), AGAIN)
    ended = build.stopped(decision.record, now=AGAIN)
    assert (ended.status, ended.verdicts) == (JobStatus.CANCELED, ())


MINUTE = timedelta(minutes=1)


def judged_by(
    verdict: DiagnosisResult, found: DiagnosisResult, rank: int = 0, after: timedelta = MINUTE
) -> list[bool | None]:
    """How `verdict` has turned out when the next attempt fails and that is put down to `found`."""
    before = failing(going_on(verdict), after, rank)
    decision = diagnosed(before, found, AGAIN + after)
    if decision.record.status is JobStatus.DIAGNOSING:
        before, nothing = decision.record, build.results(CheckOutcome.HEALTHY, CheckOutcome.HEALTHY)
        assert before.verdicts == ()  # the checks may blame the very machine
        decision = build.checked(before, nothing, now=AGAIN + after)
    (one,) = decision.record.verdicts
    assert (one.attempt, one.cause) == (1, verdict.cause)
    names = {True: ["VerdictsHeld"], False: ["VerdictsFailed"], None: []}
    assert measured(before, decision) == names[one.held]
    return [one.held]


ELSEWHERE = replace(HANG, where=f"instance {B}", instances=(B,))
OTHER = replace(ELSEWHERE, cause=Cause.STORAGE)


@pytest.mark.parametrize(
    ("verdict", "found", "held"),
    [
        (HANG, ELSEWHERE, False),
        (HANG, replace(HANG, cause=Cause.STORAGE), False),
        (HANG, replace(GPU, cause=Cause.WORKER_HANG, decided=False), False),
        (NETWORK, OTHER, False),
        (HANG, OTHER, None),
        (HANG, replace(NETWORK, instances=(A, B)), None),
    ],
    ids=[
        "same cause",
        "same place",
        "same cause, not sure",
        "a verdict over the job",
        "something else elsewhere",
        "something else everywhere",
    ],
)
def test_a_remedy_has_not_held_if_the_job_fails_so_again_before_that(
    verdict: DiagnosisResult, found: DiagnosisResult, held: bool | None
) -> None:
    """For the same cause, or at the same place; of anything else nobody can tell."""
    assert judged_by(verdict, found, rank=1) == [held]


def test_a_failure_after_the_attempt_has_lasted_does_not_speak_against_it() -> None:
    """Even if no look has come between."""
    assert judged_by(HANG, HANG, after=STEADY) == [True]
    assert judged_by(HANG, HANG, after=STEADY - timedelta(seconds=1)) == [False]


@pytest.mark.parametrize(
    ("rank", "checks", "held"),
    [
        (0, (CheckOutcome.HEALTHY, CheckOutcome.HEALTHY), False),
        (1, (CheckOutcome.HEALTHY, CheckOutcome.HEALTHY), None),
        (1, (CheckOutcome.REBOOT, CheckOutcome.HEALTHY), False),
        (0, (CheckOutcome.HEALTHY, CheckOutcome.REBOOT), None),
    ],
)
def test_a_failure_that_is_put_down_to_nothing_is_where_its_checks_say_or_it_began(
    rank: int, checks: tuple[CheckOutcome, CheckOutcome], held: bool | None
) -> None:
    """What a check finds is better known than who ended first."""
    record = failing(going_on(HANG), MINUTE, rank)
    after = build.applied(build.checked(record, build.results(*checks), now=AGAIN + MINUTE))
    assert [one.held for one in after.verdicts] == [held]


@pytest.mark.parametrize(("checks", "held"), [(CheckOutcome.REBOOT, False), (CheckOutcome.HEALTHY, None)])
def test_what_the_checks_find_is_waited_for_before_a_verdict_is_judged(checks: CheckOutcome, held: bool | None) -> None:
    """A diagnosis that is not sure, of another machine, says less than a check that blames the one left out."""
    record = failing(going_on(HANG), MINUTE, rank=1)
    unsure = diagnosed(record, replace(OTHER, decided=False), AGAIN + MINUTE).record
    after = build.applied(build.checked(unsure, build.results(checks, CheckOutcome.HEALTHY), now=AGAIN + MINUTE))
    assert [one.held for one in after.verdicts] == [held] and after.verdict_open is None


@pytest.mark.parametrize(
    "verdict", [replace(HANG, decided=False), replace(GPU, decided=False), replace(HANG, remedy=Remedy.NOTHING)]
)
def test_what_was_not_acted_upon_is_not_judged(verdict: DiagnosisResult) -> None:
    """The checks have decided instead."""
    record = going_on(verdict)
    assert looked(record, STEADY).record.verdicts == ()
    assert outcome_of(record, 1) is None


def test_until_it_is_known_the_outcome_is_open() -> None:
    """Of that attempt; of others nothing was said."""
    record = going_on(HANG)
    assert outcome_of(record, 1) == PastDiagnosis(1, Cause.WORKER_HANG, HANG.where, None)
    assert outcome_of(record, 2) is None
    lasted = looked(record, STEADY).record
    assert outcome_of(lasted, 1) == lasted.verdicts[0]


def test_a_job_that_fails_for_weeks_remembers_the_latest_verdicts() -> None:
    """The record is one item."""
    old = tuple(PastDiagnosis(-n, Cause.NETWORK, "job", True) for n in range(DIAGNOSES_MAX, 0, -1))
    after = looked(replace(going_on(HANG), verdicts=old), STEADY).record
    assert after.verdicts == (*old[1:], PastDiagnosis(1, Cause.WORKER_HANG, HANG.where, True))
