"""The job machine, one behaviour at a time; what depends on checks is in test_assessment and test_classic_preset."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any
from unittest.mock import ANY

import pytest
from gpu_recovery.core import commands, events
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.job import state_machine
from gpu_recovery.core.job.record import Job, JobStatus, StopPurpose
from gpu_recovery.core.policy import RecoveryPolicy
from gpu_recovery.core.published_events import utc_text
from gpu_recovery.core.state_machine import Decision, EventOutcome
from gpu_recovery.core.task import EndingKind

from tests.core.build import (
    ADAPTIVE,
    IDS,
    NOW,
    SPEC,
    applied,
    checked,
    diagnosing,
    failure,
    later,
    orders,
    placed,
    queued,
    results,
    running,
    stopped,
    stopping,
    tell,
)

CRASH, SPOT = failure(EndingKind.CRASHED), failure(EndingKind.INTERRUPTED)
SHORT = failure(EndingKind.SHORT_OF_RESOURCES)
HEALTHY, REBOOT = CheckOutcome.HEALTHY, CheckOutcome.REBOOT


def _overdue(record: Job, policy: RecoveryPolicy = ADAPTIVE, **known: Any) -> Decision[Job]:
    """What the job decides when its deadline passes."""
    assert record.deadline_at is not None
    event = events.JobDeadlineReached(
        at=record.deadline_at, attempt=record.attempt, deadline_at=record.deadline_at, **known
    )
    return tell(record, event, policy, record.deadline_at)


def _look(record: Job) -> Decision[Job]:
    """What the job decides when it is time to look."""
    assert record.look_at is not None
    event = events.JobLookDue(at=record.look_at, attempt=record.attempt, look_at=record.look_at)
    return tell(record, event, now=record.look_at)


def _refused(record: Job, lasting: bool = False) -> Job:
    event = events.LaunchRefused(
        at=NOW, attempt=record.attempt, sentence="ECS refused rank 1: RESOURCE:GPU", lasting=lasting
    )
    return stopped(applied(tell(record, event)))


# -- getting in line ---------------------------------------------------------------------------------------------------


def test_a_new_job_makes_the_scheduler_look_at_once() -> None:
    """It does not wait for the next minute."""
    decision = state_machine.created("sft-1", SPEC, ADAPTIVE, NOW)
    assert decision.record.status is JobStatus.QUEUED
    assert orders(decision, commands.PokeScheduler)
    assert "unnamed" in decision.reason


def test_a_placed_job_is_launched_where_the_scheduler_put_it() -> None:
    """The launch carries the instances in rank order and the epochs they were chosen at."""
    event = events.JobPlaced(at=NOW, attempt=0, version=1, instances=IDS, epochs=(4, 7), port_offset=1)
    decision = tell(queued(), event)
    assert decision.record.status is JobStatus.SUBMITTING
    assert orders(decision, commands.LaunchAttempt) == [commands.LaunchAttempt(1, IDS, (4, 7), 1)]


def test_a_placement_made_from_an_older_record_is_outdated() -> None:
    """The scheduler's snapshot may be old; the version is its fence."""
    record = applied(tell(queued(), events.ResourcesShort(at=NOW, attempt=0, version=1, sentence="needs 2; 1 is free")))
    late = events.JobPlaced(at=NOW, attempt=0, version=1, instances=IDS, epochs=(0, 0))
    assert tell(record, late).outcome is EventOutcome.OUTDATED


def _pending() -> Job:
    event = events.ResourcesShort(at=NOW, attempt=0, version=1, sentence="needs 2 instance(s); 1 are free")
    return applied(tell(queued(), event))


def test_a_job_short_of_resources_says_what_it_lacks_and_costs_nothing_while_it_waits() -> None:
    """The scheduler looks at all who wait at once: no record of them is opened before its time in line is over."""
    pending = _pending()
    assert (pending.status, pending.reason) == (JobStatus.PENDING_RESOURCES, "needs 2 instance(s); 1 are free")
    assert (pending.deadline_at, pending.look_at) == (later(ADAPTIVE.queue_timeout_s), None)
    assert _overdue(pending).record.status is JobStatus.FAILED


def test_a_job_that_an_older_release_kept_in_line_goes_on_waiting() -> None:
    """Its deadline was the next try then: that is no reason to give it up, and it finds its place in the line."""
    old = replace(_pending(), deadline_at=later(60))
    again = _overdue(replace(old, commands=()))
    assert again.record.status is JobStatus.PENDING_RESOURCES
    assert again.record.deadline_at == later(ADAPTIVE.queue_timeout_s)
    assert orders(again, commands.PokeScheduler) and again.record.history == old.history


def test_a_time_in_line_that_is_not_over_ends_nothing() -> None:
    """Whoever says so early, however often, changes nothing."""
    pending = _pending()
    early = events.JobDeadlineReached(at=NOW, attempt=pending.attempt, deadline_at=pending.deadline_at)
    assert tell(pending, early).outcome is EventOutcome.IGNORED


def test_a_job_that_lacks_something_else_now_says_so() -> None:
    """The same sentence again would be no news."""
    pending = _pending()
    told = {"at": NOW, "attempt": 0, "version": pending.version}
    assert tell(pending, events.ResourcesShort(**told, sentence=pending.reason)).outcome is EventOutcome.IGNORED
    assert tell(pending, events.ResourcesShort(**told, sentence="waits behind a")).record.reason == "waits behind a"


def test_the_first_time_at_which_a_job_could_have_started_but_for_those_that_passed_it_is_kept() -> None:
    """The slack of the head counts from it, until the job has a place."""
    pending = _pending()
    short = events.ResourcesShort(at=NOW, attempt=0, version=1, sentence=pending.reason, short_of=pending.short_of)
    passed = applied(tell(pending, replace(short, version=pending.version, passed_since=later(60))))
    assert passed.passed_since == later(60)
    again = replace(short, version=passed.version, passed_since=later(90))
    assert tell(passed, again).outcome is EventOutcome.IGNORED
    other = applied(tell(passed, replace(again, passed_since=None, sentence="is second", short_of="turn")))
    assert other.passed_since == later(60)
    placed = events.JobPlaced(at=NOW, attempt=0, version=other.version, instances=IDS, epochs=(0, 0))
    assert tell(other, placed).record.passed_since is None


def _waited_out(pending: Job) -> int:
    """For how many seconds the job goes on looking until it gives up."""
    record, began = pending, pending.status_at
    for _ in range(100_000):
        assert record.deadline_at is not None
        decision = _overdue(replace(record, commands=()))
        if decision.record.status is JobStatus.FAILED:
            return int((record.deadline_at - began).total_seconds())
        record = decision.record
    raise AssertionError("it never gives up")


def test_the_queues_time_counts_from_the_submission_however_often_it_looked() -> None:
    """Looking again does not buy time."""
    assert _overdue(queued()).record.status is JobStatus.FAILED
    waited = _waited_out(_pending())
    assert 0 <= waited - ADAPTIVE.queue_timeout_s <= ADAPTIVE.pending_retry_s


def test_a_job_that_ran_for_long_may_wait_for_a_place_again() -> None:
    """After eight days of running, a relaunch that finds no room has the queue's whole time before it."""
    begun = later(8 * 86_400)
    record = running(now=begun)
    record = applied(tell(record, events.RankFailed(at=begun, attempt=1, failure=SHORT), now=begun))
    pending = stopped(record, now=begun)
    assert pending.status is JobStatus.PENDING_RESOURCES
    assert pending.queued_at == NOW
    assert 0 <= _waited_out(pending) - ADAPTIVE.queue_timeout_s <= ADAPTIVE.pending_retry_s


# -- launching ---------------------------------------------------------------------------------------------------------


def test_a_refused_launch_is_undone_and_tried_again_uncounted() -> None:
    """Half a gang is no gang: what started is stopped, and nobody is to blame."""
    record = placed(queued())
    decision = tell(record, events.LaunchRefused(at=NOW, attempt=1, sentence="RESOURCE:GPU"))
    assert orders(decision, commands.StopAttempt) == [commands.StopAttempt(1)]
    pending = _refused(record)
    assert pending.status is JobStatus.PENDING_RESOURCES
    assert (pending.attempts_counted, pending.attempts_uncounted) == (0, {"INSUFFICIENT_RESOURCES": 1})


def test_uncounted_relaunches_are_bounded_too() -> None:
    """A launch that is always refused fails in the end, and says how often it was tried."""
    record = queued()
    for _ in range(ADAPTIVE.uncounted_relaunches_max):
        record = _refused(placed(record))
        assert record.status is JobStatus.PENDING_RESOURCES
    record = _refused(placed(record))
    assert record.status is JobStatus.FAILED
    assert f"relaunch {ADAPTIVE.uncounted_relaunches_max}" in record.reason


def test_a_lasting_refusal_fails_the_job_with_what_ecs_said() -> None:
    """Another try would be refused the same way."""
    record = _refused(placed(queued()), lasting=True)
    assert record.status is JobStatus.FAILED
    assert "ECS refused rank 1: RESOURCE:GPU" in record.reason


def test_a_launch_that_takes_too_long_is_given_up() -> None:
    """SUBMITTING ends by its deadline, uncounted."""
    decision = _overdue(placed(queued()))
    assert decision.record.status is JobStatus.STOPPING
    assert decision.record.stop_purpose is StopPurpose.RELAUNCH


def test_a_launch_that_ends_while_stopping_has_its_tasks_stopped_once() -> None:
    """Tasks that started after the first stop must not stay; hearing of the launch again starts nothing."""
    record = stopping(CRASH, record=placed(queued()))
    done = events.AttemptLaunched(at=NOW, attempt=1)
    decision = tell(record, done)
    assert orders(decision, commands.StopAttempt) == [commands.StopAttempt(1)]
    assert tell(decision.record, done).outcome is EventOutcome.IGNORED


def test_a_launch_heard_of_again_while_stopping_stops_nothing_anew() -> None:
    """The launch had ended before the gang failed."""
    record = stopping(CRASH)
    assert tell(record, events.AttemptLaunched(at=NOW, attempt=1)).outcome is EventOutcome.IGNORED


def test_a_gang_that_does_not_all_start_is_stopped_and_checked() -> None:
    """SUBMITTED ends by its deadline; what went wrong is told at the end, not what was done about it."""
    record = applied(tell(placed(queued()), events.AttemptLaunched(at=NOW, attempt=1)))
    halted = _overdue(record).record
    assert (halted.status, halted.stop_purpose) == (JobStatus.STOPPING, StopPurpose.DIAGNOSE)
    decision = checked(stopped(halted), results(HEALTHY, HEALTHY))
    assert decision.record.status is JobStatus.RECOVERING
    assert f"not every rank was running within {ADAPTIVE.start_timeout_s} s" in decision.reason


def test_a_new_attempt_forgets_the_failure_of_the_last() -> None:
    """Otherwise a later stop would be explained by, and judged on, what happened before."""
    record = stopped(stopping(SPOT))
    assert record.status is JobStatus.RECOVERING
    again = placed(record)
    assert again.failure is None
    assert again.stop_reason == ""


# -- failing and stopping ----------------------------------------------------------------------------------------------


def test_the_first_failure_opens_an_incident_and_tells_operators() -> None:
    """One incident has one id from its first message to its last."""
    decision = tell(running(), events.RankFailed(at=NOW, attempt=1, failure=CRASH))
    (told,) = orders(decision, commands.NotifyOperator)
    assert decision.record.incident_id == told.incident_id == "sft-1--a01"
    assert [one.detail_type for one in orders(decision, commands.PublishEvent)] == [
        "Recovery Started",
        "Job State Changed",
    ]


def test_a_second_failure_while_stopping_is_expected() -> None:
    """Ranks die when their gang dies."""
    decision = tell(stopping(CRASH), events.RankFailed(at=NOW, attempt=1, failure=failure(EndingKind.FAILED, rank=1)))
    assert decision.outcome is EventOutcome.IGNORED
    assert decision.record.failure == CRASH


def test_a_gang_that_dies_all_at_once_is_diagnosed_without_a_stop() -> None:
    """Nothing is left to stop, and the way on is the same."""
    decision = tell(running(), events.AllRanksStopped(at=NOW, attempt=1, failure=CRASH))
    assert decision.record.status is JobStatus.DIAGNOSING
    assert not orders(decision, commands.StopAttempt)
    assert orders(decision, commands.CheckInstances)
    assert "signal" in decision.reason or "CRASHED" in decision.reason


def test_capacity_taken_away_relaunches_elsewhere_uncounted() -> None:
    """Spot took an instance: the gang stops, its instances are given back, and it waits for another place."""
    decision = tell(stopping(SPOT), events.AllRanksStopped(at=NOW, attempt=1, failure=SPOT))
    assert decision.record.status is JobStatus.RECOVERING
    assert decision.record.attempts_uncounted == {"INTERRUPTED": 1}
    assert [order.instances for order in orders(decision, commands.ReleaseInstances)] == [IDS]


def test_a_gang_that_will_not_stop_is_stopped_again_then_rebooted_then_given_up() -> None:
    """GPUs never come back on suspicion: what is not confirmed in the end stays claimed."""
    record = stopping(CRASH)
    first = _overdue(record, unconfirmed=IDS[1:])
    assert first.record.status is JobStatus.STOPPING
    assert [type(one.command) for one in first.commands] == [commands.StopAttempt, commands.ObserveAttempt]
    second = _overdue(first.record, unconfirmed=IDS[1:])
    (order,) = orders(second, commands.EndUnconfirmed)
    assert (order.attempt, list(order.ranks.values())) == (1, [()])
    assert second.record.deadline_at == first.record.deadline_at + (
        later(ADAPTIVE.reboot_timeout_s + ADAPTIVE.verify_timeout_s) - NOW
    )
    third = _overdue(second.record, unconfirmed=IDS[1:])
    assert third.record.status is JobStatus.FAILED
    (release,) = orders(third, commands.ReleaseInstances)
    assert (release.instances, release.keep_claims_of) == (IDS, IDS[1:])
    assert orders(third, commands.NotifyOperator)


@pytest.mark.parametrize(
    ("under_way", "status"),
    [(IDS, JobStatus.STOPPING), (IDS[:1], JobStatus.FAILED), ((), JobStatus.FAILED)],
    ids=["all repaired", "one left alone", "none repaired"],
)
def test_a_job_waits_while_reboots_that_end_its_ranks_go_on(under_way: tuple[str, ...], status: JobStatus) -> None:
    """The product's own limits may hold the reboots of a large gang back for hours. Then its deadline moves."""
    record = _overdue(_overdue(stopping(CRASH), unconfirmed=IDS).record, unconfirmed=IDS).record
    decision = _overdue(record, unconfirmed=IDS, under_way=under_way)
    assert decision.record.status is status
    if status is JobStatus.STOPPING:
        assert record.deadline_at is not None
        assert decision.record.deadline_at == record.deadline_at + timedelta(seconds=ADAPTIVE.reboot_timeout_s)
        assert _overdue(decision.record, unconfirmed=IDS, under_way=IDS).record.status is JobStatus.STOPPING


def test_a_stop_that_took_long_still_ends_for_what_it_was_begun_for() -> None:
    """Who reads why a job failed reads the cause, not that ECS had to be asked twice."""
    record = running(record=queued(spec=replace(SPEC, max_runtime_s=3_600)))
    halted = _overdue(record).record
    slow = _overdue(halted, unconfirmed=IDS).record
    assert "asking ECS" in slow.reason
    decision = tell(slow, events.AllRanksStopped(at=NOW, attempt=1))
    assert decision.record.status is JobStatus.FAILED
    assert "ran longer than its limit of 3600 s" in decision.reason


def test_a_job_without_a_limit_runs_for_ever_but_is_looked_at() -> None:
    """RUNNING has no deadline of its own; an event that was lost is found by looking."""
    record = running()
    assert record.deadline_at is None
    decision = _look(record)
    assert orders(decision, commands.ObserveAttempt) == [commands.ObserveAttempt(1)]
    assert decision.record.look_at == later(2 * ADAPTIVE.poll_interval_s)
    assert decision.record.history == record.history


@pytest.mark.parametrize("make", [lambda: placed(queued()), running], ids=["launched", "running"])
def test_looks_whose_orders_are_never_carried_out_do_not_pile_up(make: Any) -> None:
    """While AWS is out of reach for a day, the record must not grow with every look."""
    record = make()
    before = len(record.commands)
    for _ in range(50):
        record = applied(_look(record))
    assert len(record.commands) <= before + 1


def test_a_rank_that_even_a_reboot_did_not_end_fails_the_job_at_once() -> None:
    """Its GPUs stay claimed, and when it does end in spite of all, they are given back."""
    record = stopping(CRASH)
    told = events.RepairEnded(at=NOW, attempt=1, instance_id=IDS[1], healed=False, sentence="it did not come back")
    decision = tell(record, told)
    assert decision.record.status is JobStatus.FAILED
    assert [one.keep_claims_of for one in orders(decision, commands.ReleaseInstances)] == [IDS[1:]]
    end = events.AllRanksStopped(at=NOW, attempt=1, failure=CRASH)
    late = tell(decision.record, end)
    assert (late.record.status, late.record.reason.startswith(decision.reason)) == (JobStatus.FAILED, True)
    assert [one.keep_claims_of for one in orders(late, commands.ReleaseInstances)] == [()]
    assert tell(late.record, end).outcome is EventOutcome.IGNORED


# -- canceling ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [queued, diagnosing], ids=["in line", "under check"])
def test_a_job_without_ranks_is_canceled_at_once(make: Any) -> None:
    """Nothing has to end first."""
    decision = tell(make(), events.CancelRequested(at=NOW, attempt=make().attempt, by="ada"))
    assert decision.record.status is JobStatus.CANCELED
    assert orders(decision, commands.ReleaseInstances)


def test_a_running_job_is_canceled_once_its_ranks_have_ended() -> None:
    """Its GPUs are not free before."""
    halted = applied(tell(running(), events.CancelRequested(at=NOW, attempt=1, by="ada")))
    assert halted.status is JobStatus.STOPPING
    done = tell(halted, events.AllRanksStopped(at=NOW, attempt=1, failure=CRASH))
    assert done.record.status is JobStatus.CANCELED
    assert [order.instances for order in orders(done, commands.ReleaseInstances)] == [IDS]


def test_canceling_a_job_that_is_being_stopped_changes_what_it_is_stopped_for() -> None:
    """It would otherwise be checked and relaunched."""
    cancel = events.CancelRequested(at=NOW, attempt=1, by="ada")
    halted = applied(tell(stopping(CRASH), cancel))
    assert halted.stop_purpose is StopPurpose.CANCEL
    assert tell(halted, cancel).outcome is EventOutcome.IGNORED
    assert stopped(halted).status is JobStatus.CANCELED


# -- checking and recovering -------------------------------------------------------------------------------------------


def test_checks_that_stay_away_end_by_the_deadline_with_what_is_in() -> None:
    """The barrier does not wait for ever; who did not answer could not be told."""
    decision = _overdue(diagnosing(CRASH), results=results(HEALTHY))
    assert decision.record.status is JobStatus.RECOVERING
    assert "no answer" in decision.reason


def test_a_repair_that_ends_before_the_barrier_is_remembered() -> None:
    """It is told once, so it must not be lost."""
    ended = events.RepairEnded(at=NOW, attempt=1, instance_id=IDS[1], healed=True, sentence="it is back")
    early = applied(tell(diagnosing(CRASH), ended))
    assert early.status is JobStatus.DIAGNOSING
    assert checked(early, results(HEALTHY, REBOOT)).record.repairing == ()


def test_a_repair_that_fails_leaves_an_adaptive_job_waiting_for_spares() -> None:
    """Any healthy capacity will do, so only the deadline gives up."""
    waiting = applied(checked(diagnosing(CRASH), results(HEALTHY, REBOOT)))
    event = events.RepairEnded(at=NOW, attempt=1, instance_id=IDS[1], healed=False, sentence="it did not come back")
    decision = tell(waiting, event)
    assert (decision.record.status, decision.record.repairing) == (JobStatus.RECOVERING, ())
    assert _overdue(decision.record).record.status is JobStatus.FAILED


def test_training_that_goes_on_closes_the_incident_under_its_own_id() -> None:
    """Ranks that run are no recovery yet. Operators who heard the beginning hear the end, and the bus does."""
    waiting = applied(checked(diagnosing(CRASH), results(HEALTHY, REBOOT)))
    second = applied(tell(placed(waiting), events.AttemptLaunched(at=NOW, attempt=2)))
    decision = tell(second, events.AllRanksRunning(at=NOW, attempt=2))
    assert orders(decision, commands.NotifyOperator) == [] and decision.record.incident_id == "sft-1--a01"
    assert "Recovery Succeeded" not in [one.detail_type for one in orders(decision, commands.PublishEvent)]
    assert decision.record.look_at == later(ADAPTIVE.recovered_after_s)
    continued = events.TrainingContinued(
        at=NOW, attempt=2, sentence="attempt 2 has run for 60 s", kept_until=later(-600)
    )
    decision = tell(applied(decision), continued)
    (told,) = orders(decision, commands.NotifyOperator)
    assert told.incident_id == "sft-1--a01" and "attempt 2 has run for 60 s" in told.body
    assert decision.record.incident_id is None
    assert tell(applied(decision), continued).outcome is EventOutcome.IGNORED
    published = {one.detail_type: one.data for one in orders(decision, commands.PublishEvent)}
    assert published["Recovery Succeeded"]["kept_until"] == utc_text(later(-600))


def test_every_change_of_status_is_published_once() -> None:
    """The bus says from what to what, at which attempt and version, and why."""
    decision = tell(queued(), events.JobPlaced(at=NOW, attempt=0, version=1, instances=IDS, epochs=(0, 0)))
    (published,) = orders(decision, commands.PublishEvent)
    placed_on = {str(rank): instance_id for rank, instance_id in enumerate(IDS)}
    assert published.data == {
        "job_id": "sft-1",
        "attempt": 1,
        "before": "QUEUED",
        "after": "SUBMITTING",
        "version": 2,
        "reason": decision.reason,
        "incident_id": None,
        "at": utc_text(NOW),
        "since": utc_text(queued().status_at),
        "user": SPEC.user,
        "priority": "NORMAL",
        "instances": SPEC.nnodes,
        "gpus": SPEC.nnodes * SPEC.gpus_per_node,
        "opened_at": None,
        "failure": None,
        "diagnosis": None,
        "message": None,
        "replay": {
            "version": 1,
            "event": "JobPlaced",
            "policy": {"preset": "adaptive"},
            "placed": placed_on,
            "unnamed": 0,
        },
    }


def test_every_event_of_an_incident_names_its_beginning() -> None:
    """The event history needs no other event to find its place, so it does not matter which arrives first."""
    told = []
    decision = tell(running(), events.RankFailed(at=NOW, attempt=1, failure=CRASH))
    told += orders(decision, commands.PublishEvent)
    stopped = events.AllRanksStopped(at=later(60), attempt=1, failure=CRASH)
    told += orders(tell(applied(decision), stopped, now=later(60)), commands.PublishEvent)
    assert len(told) == 3
    assert {one.data["opened_at"] for one in told} == {utc_text(NOW)}
    assert [one.data["at"] for one in told] == [utc_text(NOW), utc_text(NOW), utc_text(later(60))]
    assert {one.data["failure"]["rank"] for one in told} == {CRASH.rank}
    assert told[0].data["message"] == {"severity": "SEV3", "subject": ANY}


def test_a_command_is_claimed_for_longer_than_any_function_runs() -> None:
    """Until then nobody else may carry it out."""
    decision = state_machine.created("sft-1", SPEC, ADAPTIVE, NOW)
    assert {one.acting_until for one in decision.commands} == {later(ADAPTIVE.command_lease_s)}
