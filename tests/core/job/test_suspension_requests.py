"""Requests for suspension: of the scheduler, of a user, and of a rank by its exit code."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from gpu_recovery.core import commands, events
from gpu_recovery.core.job.assessment import ASKS_FOR_SUSPENSION
from gpu_recovery.core.job.queue_entry import entry_of
from gpu_recovery.core.job.record import CloseCause, JobStatus, StopPurpose
from gpu_recovery.core.state_machine import EventOutcome
from gpu_recovery.core.task import EndingKind

from tests.core.build import (
    ADAPTIVE,
    CLASSIC,
    IDS,
    NOW,
    POLICIES,
    applied,
    checked,
    diagnosing,
    failure,
    later,
    lost,
    orders,
    placed,
    queued,
    results,
    running,
    stopped,
    suspend_event,
    suspended,
    suspending,
    tell,
)
from tests.core.job.suspension_cases import ends
from tests.core.job.test_recovering import MAKE

S = JobStatus
POLICY = pytest.mark.parametrize("policy", POLICIES, ids=["classic", "adaptive"])
ENDED = (S.SUCCEEDED, S.FAILED, S.CANCELED)


# -- who may ask -------------------------------------------------------------------------------------------------------


def test_a_scheduler_that_read_an_older_record_suspends_nobody() -> None:
    """The job may have become another's victim, or nobody's, since."""
    record = running()
    old = replace(suspend_event(record, "big-1"), version=record.version - 1)
    assert tell(record, old).outcome is EventOutcome.OUTDATED


def test_a_job_that_is_only_observed_is_never_suspended() -> None:
    """Neither alone nor with everything else."""
    for record, policy in (
        (replace(running(), hands_off=True), ADAPTIVE),
        (running(), replace(ADAPTIVE, observe_only=True)),
    ):
        assert tell(record, suspend_event(record), policy).outcome is EventOutcome.IGNORED


@pytest.mark.parametrize("status", list(JobStatus))
def test_a_person_may_suspend_whatever_has_not_ended(status: JobStatus) -> None:
    """It is out of line until a person resumes it, whatever it is doing now; what has ended is left alone."""
    record = MAKE[status]()
    decision = tell(record, suspend_event(record))
    if status in ENDED:
        assert decision.outcome is EventOutcome.IGNORED
        return
    assert decision.record.held
    entry = entry_of(decision.record)
    assert entry is not None and not entry.may_start(later(10**8))


@pytest.mark.parametrize("make", [lambda: placed(queued()), lost], ids=["launching", "lost"])
def test_what_has_nothing_to_save_or_cannot_hear_is_stopped_at_once(make: Any) -> None:
    """No grace for ranks that do not run yet, nor for a rank 0 that nobody hears of."""
    decision = tell(make(), suspend_event(make()))
    assert decision.record.status is S.STOPPING and orders(decision, commands.StopAttempt)
    assert stopped(decision.record).status is S.SUSPENDED


def test_a_failure_under_way_is_looked_into_before_the_job_is_held() -> None:
    """Whoever suspends a job whose GPU is broken does not want the GPU used by the next."""
    record = diagnosing(failure(EndingKind.CRASHED))
    record = applied(tell(record, suspend_event(record)))
    assert record.status is S.DIAGNOSING and record.held
    decision = checked(record, results())
    after = decision.record
    assert (after.status, after.attempts_counted) == (S.SUSPENDED, 1)
    assert orders(decision, commands.ReleaseInstances)


def test_a_gang_that_is_moved_elsewhere_stays_out_of_line_when_a_person_says_so() -> None:
    """Its gang is being stopped already; it just does not go on."""
    record = running()
    event = events.InstanceLeaving(at=NOW, attempt=1, instance_id=IDS[0], sentence="Spot takes it")
    record = applied(tell(record, event))
    record = applied(tell(record, suspend_event(record)))
    after = stopped(record)
    assert after.status is S.SUSPENDED and after.held


def test_what_is_being_ended_is_not_kept_alive() -> None:
    """A canceled job is canceled."""
    record = running()
    record = applied(tell(record, events.CancelRequested(at=NOW, attempt=1, by="ada")))
    assert tell(record, suspend_event(record)).outcome is EventOutcome.IGNORED


@pytest.mark.parametrize("make", [suspending, suspended], ids=["suspending", "suspended"])
def test_a_suspended_job_can_be_canceled(make: Any) -> None:
    """In every state."""
    record = make()
    after = applied(tell(record, events.CancelRequested(at=NOW, attempt=1, by="ada")))
    assert after.status in (S.STOPPING, S.CANCELED)
    assert after.status is S.CANCELED or stopped(after).status is S.CANCELED


# -- asking for it -----------------------------------------------------------------------------------------------------


@POLICY
def test_a_rank_that_exits_with_75_has_its_gang_suspended(policy: Any) -> None:
    """`go_suspend()` from any rank; it is in line again at once, and no attempt is counted."""
    record = running(policy)
    record = applied(tell(record, ends(record, EndingKind.FAILED, ASKS_FOR_SUSPENSION, rank=1), policy))
    assert (record.status, record.stop_purpose) == (S.STOPPING, StopPurpose.SUSPEND)
    record = stopped(record, policy)
    assert (record.status, record.held, record.attempts_counted) == (S.SUSPENDED, False, 0)
    assert record.attempts_uncounted == {CloseCause.SUSPENDED: 1}


@pytest.mark.parametrize(
    ("kind", "purpose"),
    [(EndingKind.STOPPED_BY_PERSON, StopPurpose.CANCEL), (EndingKind.INTERRUPTED, StopPurpose.RELAUNCH)],
)
def test_a_rank_that_was_ended_with_75_left_over_asks_for_nothing(kind: EndingKind, purpose: StopPurpose) -> None:
    """Only its own exit is a wish: what people or Spot ended is what they made of it."""
    record = running()
    record = applied(tell(record, ends(record, kind, ASKS_FOR_SUSPENSION)))
    assert record.stop_purpose is purpose


def test_who_only_ever_asks_to_be_suspended_fails_at_last() -> None:
    """A program that cannot begin must not be begun for ever; each pause is longer than the last."""
    record, pauses = queued(), []
    for _ in range(ADAPTIVE.uncounted_relaunches_max):
        record = running(record=replace(record, not_before=None))
        record = stopped(applied(tell(record, ends(record, EndingKind.FAILED, ASKS_FOR_SUSPENSION))))
        assert record.status is S.SUSPENDED
        pauses.append(record.not_before)
    assert pauses[0] is None and pauses[-1] is not None
    record = running(record=replace(record, not_before=None))
    record = stopped(applied(tell(record, ends(record, EndingKind.FAILED, ASKS_FOR_SUSPENSION))))
    assert record.status is S.FAILED and "relaunch" in record.reason


# -- what it takes up --------------------------------------------------------------------------------------------------


def test_classic_fails_what_it_failed_before_but_for_a_wish() -> None:
    """Any other code than 1 and 75 stops the gang and fails the job, as seed 001 has it."""
    record = running(CLASSIC)
    for code, purpose in ((2, StopPurpose.FAIL), (1, StopPurpose.DIAGNOSE), (75, StopPurpose.SUSPEND)):
        assert applied(tell(record, ends(record, EndingKind.FAILED, code), CLASSIC)).stop_purpose is purpose
