"""When it is ordered to record what was submitted and what became of an attempt (seed 004: a folder for each task)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gpu_recovery.core import commands, events
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.job import state_machine
from gpu_recovery.core.job.record import Job, JobStatus
from gpu_recovery.core.job.spec import Backend
from gpu_recovery.core.policy import PRESETS, RecoveryPolicy
from gpu_recovery.core.ray import state_machine as ray_state_machine
from gpu_recovery.core.task import EndingKind

from tests.core.build import (
    ADAPTIVE,
    NOW,
    SPEC,
    applied,
    checked,
    diagnosing,
    failure,
    orders,
    queued,
    results,
    running,
    suspending,
    tell,
)

S = JobStatus
RECORDING = replace(ADAPTIVE, record_attempts=True)
CRASH = failure(EndingKind.CRASHED, 139)


def test_nothing_is_recorded_unless_the_policy_says_so() -> None:
    """The presets do not: a deployment does (`gpu-recovery:record_attempts`)."""
    assert not any(policy.record_attempts for policy in (*PRESETS.values(), RecoveryPolicy()))
    assert not orders(state_machine.created("sft-1", SPEC, ADAPTIVE, NOW), commands.RecordAttempt)


def test_what_was_submitted_is_recorded_at_once() -> None:
    """Before the scheduler has looked at it."""
    made = state_machine.created("sft-1", SPEC, RECORDING, NOW)
    assert orders(made, commands.RecordAttempt) == [commands.RecordAttempt(0)]


def test_a_job_that_was_not_submitted_has_no_text_to_record() -> None:
    """Its tasks were started by a person."""
    made = state_machine.adopted("ecs/sft", SPEC, hands_off=False, policy=RECORDING, now=NOW)
    assert not orders(made, commands.RecordAttempt)


def test_an_attempt_is_recorded_when_its_last_rank_has_ended() -> None:
    """Not at the first one's end, when the others are being stopped, and once only."""
    record = running(RECORDING)
    first = tell(record, events.RankFailed(at=NOW, attempt=1, failure=CRASH), RECORDING)
    assert first.record.status is S.STOPPING and not orders(first, commands.RecordAttempt)
    ended = events.AllRanksStopped(at=NOW, attempt=1, failure=CRASH)
    after = tell(first.record, ended, RECORDING)
    assert after.record.status not in (S.STOPPING, S.RUNNING)
    assert orders(after, commands.RecordAttempt) == [commands.RecordAttempt(1)]


def test_it_is_recorded_again_when_the_checks_have_said_who_is_to_blame() -> None:
    """The kind of the failure may be another one then."""
    record = diagnosing(CRASH, RECORDING)
    after = checked(record, results(CheckOutcome.REBOOT, CheckOutcome.HEALTHY), RECORDING)
    assert after.record.status is not S.DIAGNOSING
    assert orders(after, commands.RecordAttempt) == [commands.RecordAttempt(record.attempt)]


@pytest.mark.parametrize("record", [queued(RECORDING), suspending(RECORDING)], ids=["in line", "under notice"])
def test_what_is_in_line_or_still_under_way_is_not_recorded(record: Job) -> None:
    """A job in line has no attempt that could have ended; one under notice has one that has not."""
    wish = events.CancelRequested(at=NOW, attempt=record.attempt, by="ana")
    assert not orders(tell(record, wish, RECORDING), commands.RecordAttempt)


def test_a_suspended_attempt_is_recorded_too() -> None:
    """It is over, whatever comes after it."""
    record = applied(tell(suspending(RECORDING), events.RankFailed(at=NOW, attempt=1, failure=CRASH), RECORDING))
    after = tell(record, events.AllRanksStopped(at=NOW, attempt=1, failure=CRASH), RECORDING)
    assert after.record.status is S.SUSPENDED
    assert orders(after, commands.RecordAttempt) == [commands.RecordAttempt(1)]


def test_so_is_one_on_ray() -> None:
    """Whatever backend it ran on."""
    record = replace(running(RECORDING), spec=replace(SPEC, backend=Backend.RAY, entrypoint="true"))
    after = ray_state_machine.decide(record, events.AllRanksStopped(at=NOW, attempt=1, failure=None), RECORDING, NOW)
    assert after.record.status is S.SUCCEEDED
    assert orders(after, commands.RecordAttempt) == [commands.RecordAttempt(1)]
