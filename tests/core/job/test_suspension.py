"""Suspension: a gang leaves its instances, keeps its place in the queue, and comes back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from gpu_recovery.core import commands, events
from gpu_recovery.core.cluster_snapshot import is_usable
from gpu_recovery.core.health_check import CheckOutcome, Verdict
from gpu_recovery.core.instance.record import Claim, InstanceStatus
from gpu_recovery.core.job.queue_entry import entry_of
from gpu_recovery.core.job.record import Job, JobStatus, StopPurpose
from gpu_recovery.core.queue.entry import waiting_job
from gpu_recovery.core.queue.ordering import in_queue_order
from gpu_recovery.core.queue.priority import Priority
from gpu_recovery.core.state_machine import EventOutcome
from gpu_recovery.core.task import EndingKind

from tests.core.build import (
    ADAPTIVE,
    CLASSIC,
    IDS,
    NOW,
    POLICIES,
    SPEC,
    applied,
    available,
    failure,
    later,
    orders,
    queued,
    running,
    stopped,
    stopping,
    suspend_event,
    suspended,
    suspending,
    tell,
)
from tests.core.job.suspension_cases import ends

S = JobStatus
POLICY = pytest.mark.parametrize("policy", POLICIES, ids=["classic", "adaptive"])


def resume_event(record: Job) -> events.ResumeRequested:
    return events.ResumeRequested(at=later(1), attempt=record.attempt, by="ada")


# -- making room -------------------------------------------------------------------------------------------------------


@POLICY
def test_rank_0_is_told_first_and_nobody_is_stopped(policy: Any) -> None:
    """Saving a state takes every rank: the others work on until rank 0 has left."""
    record = running(policy, queued(policy, spec=replace(SPEC, suspend_grace_s=20)))
    decision = tell(record, suspend_event(record, "big-1"), policy)
    after = decision.record
    assert (after.status, after.suspended_for, after.held) == (S.SUSPENDING, "big-1", False)
    assert orders(decision, commands.SuspendAttempt) == [commands.SuspendAttempt(1)]
    assert not orders(decision, commands.StopAttempt) and not orders(decision, commands.ReleaseInstances)
    assert after.deadline_at == later(20 + policy.suspend_margin_s)


@pytest.mark.parametrize("kind", [EndingKind.STOPPED_BY_US, EndingKind.FAILED, EndingKind.CRASHED])
def test_whoever_leaves_first_takes_the_others_along_and_nothing_is_counted(kind: EndingKind) -> None:
    """An exit under notice is no failure of the job, whatever its code: no attempt is counted, nobody is told."""
    record = applied(tell(suspending(), ends(suspending(), kind, 1)))
    assert (record.status, record.stop_purpose) == (S.STOPPING, StopPurpose.SUSPEND)
    after = stopped(record)
    assert (after.status, after.attempts_counted, after.attempts_uncounted) == (S.SUSPENDED, 0, {})
    assert after.incident_id is None and after.incident_at is None and after.failure is None


def left_first(kind: EndingKind, policy: Any = ADAPTIVE) -> Any:
    """The decision by which a job is suspended whose rank 1 ended so, first of all, under the notice."""
    record = suspending(policy)
    record = applied(tell(record, ends(record, kind, 134, rank=1), policy))
    return tell(record, events.AllRanksStopped(at=NOW, attempt=1, failure=record.failure), policy)


@pytest.mark.parametrize("kind", [EndingKind.CRASHED, EndingKind.HOST_FAULT])
def test_the_machine_of_a_crash_under_notice_goes_from_its_job_to_its_check(kind: EndingKind) -> None:
    """Its GPUs may be why. Nobody waits for that check, and nobody can be placed before it: the claim goes with it."""
    decision = left_first(kind)
    assert orders(decision, commands.ReleaseInstances) == [commands.ReleaseInstances(IDS[:1], attempt=1)]
    (told,) = orders(decision, commands.TellInstance)
    assert told.instance_id == IDS[1] and not told.event.awaited
    there = replace(available(IDS[1]), claims={"sft-1": Claim(1, 8)}, reserved_for="")
    checked_now = tell(there, told.event)
    after = checked_now.record
    assert (after.status, after.claims, after.reserved_for) == (InstanceStatus.CHECKING, {}, "")
    assert orders(checked_now, commands.RunCheck) and not is_usable(after)
    verdict = Verdict(CheckOutcome.REBOOT, "an uncorrectable error", boot_id="b-1")
    ended = tell(after, events.CheckEnded(at=NOW, check_id=after.check.check_id, verdict=verdict))
    assert ended.record.status is InstanceStatus.REBOOTING
    assert not orders(ended, commands.ReportCheck) and not orders(ended, commands.TellJob)
    assert tell(after, told.event).outcome is EventOutcome.IGNORED


def test_a_crash_that_only_the_end_of_all_tells_of_is_looked_into_as_well() -> None:
    """The gang is stopped before the first end is heard of: it is known when the last one is."""
    record = suspending()
    event = events.AllRanksStopped(at=NOW, attempt=1, failure=failure(EndingKind.CRASHED, rank=1))
    (told,) = orders(tell(record, event), commands.TellInstance)
    at = record.deadline_at
    assert at is not None and told.instance_id == IDS[1]
    late = replace(record, commands=())
    late = applied(tell(late, events.JobDeadlineReached(at=at, attempt=1, deadline_at=at), now=at))
    (told,) = orders(tell(late, event, now=at), commands.TellInstance)
    assert told.instance_id == IDS[1]


@pytest.mark.parametrize("kind", [EndingKind.STOPPED_BY_US, EndingKind.FAILED, EndingKind.INTERRUPTED])
def test_who_only_leaves_has_no_machine_checked(kind: EndingKind) -> None:
    """Stopped by us, with a code of its own, or with its capacity: whoever is to have the place has it at once."""
    decision = left_first(kind)
    assert not orders(decision, commands.TellInstance)
    assert orders(decision, commands.ReleaseInstances) == [commands.ReleaseInstances(IDS, attempt=1)]


def test_classic_checks_after_exit_code_one_only_under_notice_too() -> None:
    """As seed 001 has it."""
    assert not orders(left_first(EndingKind.CRASHED, CLASSIC), commands.TellInstance)


@pytest.mark.parametrize("status", [s for s in InstanceStatus if s is not InstanceStatus.AVAILABLE])
def test_a_machine_that_is_out_of_use_already_is_only_let_go(status: InstanceStatus) -> None:
    """Gone, under repair or in quarantine, it does not work again without a check; the claim must not outlive that."""
    (told,) = orders(left_first(EndingKind.CRASHED), commands.TellInstance)
    there = replace(available(IDS[1]), status=status, claims={"sft-1": Claim(1, 8)}, reserved_for="sft-1")
    decision = tell(there, told.event)
    assert (decision.record.status, decision.record.claims, decision.record.reserved_for) == (status, {}, "")
    assert not orders(decision, commands.ReportCheck)


def test_who_does_not_leave_in_time_is_stopped() -> None:
    """The grace is over: the whole gang is stopped, and suspended all the same."""
    record = replace(suspending(), commands=())
    assert record.deadline_at is not None
    at = record.deadline_at
    decision = tell(record, events.JobDeadlineReached(at=at, attempt=1, deadline_at=at), now=at)
    assert orders(decision, commands.StopAttempt) and decision.record.status is S.STOPPING
    assert stopped(decision.record, now=at).status is S.SUSPENDED


def test_a_rank_0_that_was_never_told_is_told_before_anybody_is_stopped() -> None:
    """Whoever had the order died with it: it is taken over when its claim has expired, and once only waited for."""
    record = suspending()
    at = record.deadline_at
    assert at is not None
    decision = tell(record, events.JobDeadlineReached(at=at, attempt=1, deadline_at=at), now=at)
    after = decision.record
    assert after.status is S.SUSPENDING and not orders(decision, commands.StopAttempt)
    (order,) = [one for one in after.commands if isinstance(one.command, commands.SuspendAttempt)]
    assert after.deadline_at is not None and order.acting_until < after.deadline_at
    again = events.JobDeadlineReached(at=after.deadline_at, attempt=1, deadline_at=after.deadline_at)
    assert tell(after, again, now=after.deadline_at).record.status is S.STOPPING


def test_a_gang_that_finishes_under_the_notice_has_succeeded() -> None:
    """Every rank exited with code 0 before anybody was stopped: there is nothing to come back for."""
    record = suspending()
    decision = tell(record, events.AllRanksStopped(at=NOW, attempt=1))
    assert decision.record.status is S.SUCCEEDED


def test_a_gang_that_left_all_at_once_is_suspended() -> None:
    """Rank 0 was stopped by us, the others followed it by themselves."""
    record = suspending()
    event = events.AllRanksStopped(at=NOW, attempt=1, failure=failure(EndingKind.STOPPED_BY_US))
    assert applied(tell(record, event)).status is S.SUSPENDED


def test_the_instances_are_given_back_only_when_every_rank_has_ended() -> None:
    """The one who needs them starts on GPUs that nobody uses."""
    record = applied(tell(suspending(), ends(suspending(), EndingKind.STOPPED_BY_US)))
    assert record.commands and not any(isinstance(one.command, commands.ReleaseInstances) for one in record.commands)
    decision = tell(record, events.AllRanksStopped(at=NOW, attempt=1, failure=record.failure))
    assert orders(decision, commands.ReleaseInstances) == [commands.ReleaseInstances(IDS, attempt=1)]
    assert orders(decision, commands.PokeScheduler)


def test_a_suspended_job_keeps_its_place_in_line_and_its_count() -> None:
    """First submitted is first again; how often it had to go is remembered as long as that protects it."""
    record = stopped(applied(tell(suspending(), ends(suspending(), EndingKind.STOPPED_BY_US))), now=later(50))
    assert record.queued_at == NOW and len(record.suspensions) == 1
    again = suspending(record=running(record=record))
    assert again.queued_at == NOW and len(again.suspensions) == 2
    much_later = later(ADAPTIVE.suspensions_window_s + 1)
    late = running(record=suspended(), now=much_later)
    assert len(suspending(record=late, now=much_later).suspensions) == 1


@pytest.mark.parametrize("for_job", ["big-1", ""], ids=["for another", "by a person"])
def test_who_made_room_goes_before_equals_for_a_while(for_job: str) -> None:
    """An equal that was submitted before goes behind it until the window is over; nobody gets ahead by leaving."""
    record, window = suspended(for_job=for_job), ADAPTIVE.suspensions_window_s
    if not for_job:
        record = applied(tell(record, resume_event(record)))
    mine, older = entry_of(record), entry_of(replace(queued(job_id="older"), queued_at=later(-9)))
    assert mine is not None and older is not None
    for at, first in ((later(window - 1), "sft-1" if for_job else "older"), (later(window), "older")):
        assert in_queue_order([waiting_job(one, ADAPTIVE, at) for one in (mine, older)])[0].job_id == first


def test_it_runs_again_from_the_start_with_the_next_attempt() -> None:
    """A new attempt, as after every suspension (seed 003); nothing of the old notice is left."""
    record = running(record=suspended())
    assert (record.status, record.attempt, record.suspended_for, record.stop_purpose) == (S.RUNNING, 2, "", None)


def test_the_time_that_it_ran_is_added_up_over_its_attempts() -> None:
    """Half an hour at ABOVE_NORMAL is half an hour, in however many pieces."""
    above = queued(spec=replace(SPEC, priority=Priority.ABOVE_NORMAL))
    record = suspending(record=running(record=above))
    record = applied(tell(record, ends(record, EndingKind.STOPPED_BY_US), now=later(1_000)))
    assert record.ran_s == 1_000
    record = running(record=stopped(record, now=later(1_010)), now=later(2_000))
    record = applied(tell(record, ends(record, EndingKind.CRASHED), now=later(2_500)))
    assert record.ran_s == 1_500


# -- coming back -------------------------------------------------------------------------------------------------------


def test_who_made_room_for_another_is_in_line_at_once() -> None:
    """Nobody has to resume it; its next place is the scheduler's to find."""
    entry = entry_of(suspended())
    assert entry is not None and entry.may_start(NOW) and entry.suspended_for == "big-1"


def test_who_was_suspended_by_a_person_waits_for_a_person() -> None:
    """Resumed, it is in line where it stood, and the scheduler is told."""
    record = suspended(for_job="")
    assert record.held and record.deadline_at == later(ADAPTIVE.user_hold_timeout_s)
    decision = tell(record, resume_event(record))
    after = decision.record
    assert not after.held and after.queued_at == NOW and orders(decision, commands.PokeScheduler)
    assert after.deadline_at == later(ADAPTIVE.queue_timeout_s)
    assert tell(after, resume_event(after)).outcome is not EventOutcome.APPLIED


def test_a_person_may_change_their_mind_while_the_gang_still_leaves() -> None:
    """It goes on leaving, and is in line when it has."""
    record = suspending(for_job="")
    record = applied(tell(record, resume_event(record)))
    assert record.status is S.SUSPENDING and not record.held
    record = stopped(applied(tell(record, ends(record, EndingKind.STOPPED_BY_US))))
    entry = entry_of(record)
    assert record.status is S.SUSPENDED and entry is not None and entry.may_start(NOW)


@pytest.mark.parametrize("for_job", ["big-1", ""], ids=["for another", "by a person"])
def test_nothing_stays_suspended_for_ever(for_job: str) -> None:
    """A job that nobody resumes, or that finds no place any more, ends and is told of."""
    record = suspended(for_job=for_job)
    assert record.deadline_at is not None
    at = record.deadline_at
    decision = tell(record, events.JobDeadlineReached(at=at, attempt=1, deadline_at=at), now=at)
    assert decision.record.status is S.FAILED and orders(decision, commands.NotifyOperator)


def test_the_same_wish_delivered_twice_is_obeyed_once() -> None:
    """Late, it must not hold a job again that has been resumed since."""
    record = queued()
    wish = suspend_event(record)
    record = applied(tell(record, wish))
    record = applied(tell(record, resume_event(record)))
    assert tell(record, wish).outcome is EventOutcome.OUTDATED and not record.held


# -- what it takes up --------------------------------------------------------------------------------------------------


def test_an_instance_that_must_be_repaired_waits_for_a_gang_that_leaves_anyway() -> None:
    """It is told nothing more; its machine is looked after when it has gone."""
    for record in (suspending(), stopping(failure(EndingKind.FAILED))):
        for kind in (events.InstanceNeedsRepair, events.InstanceLeaving):
            event = kind(at=NOW, attempt=1, instance_id=IDS[0], sentence="it must go")
            assert tell(record, event).outcome is EventOutcome.IGNORED
