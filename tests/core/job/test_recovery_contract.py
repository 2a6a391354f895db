"""The downtime of a job: its phases, its cause, its end, and the limits of the recovery contract."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from gpu_recovery.aws.item_codec import decode, item_of
from gpu_recovery.core import commands, events
from gpu_recovery.core.diagnosis.taxonomy import Cause, Remedy
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.job import downtime as lengths
from gpu_recovery.core.job.diagnosis_result import DiagnosisResult
from gpu_recovery.core.job.downtime import PHASES, DownPhase, Downtime, LossCause
from gpu_recovery.core.job.record import TERMINAL, Job, JobStatus
from gpu_recovery.core.job.state_machine import TRANSITIONS
from gpu_recovery.core.state_machine import EventOutcome, due_at, next_deadline
from gpu_recovery.core.task import EndingKind
from hypothesis import given
from hypothesis import strategies as st

from tests.core.build import ADAPTIVE, IDS, NOW, SPEC, applied, failure, later, orders, queued, running, tell

FAILED_S = 3_600
"""Seconds after NOW at which the rank fails in these tests."""
WELL = {one: events.Checked(CheckOutcome.HEALTHY, "well") for one in IDS}
"""Checks that find nothing."""


def bound(**limits: Any) -> Job:
    """A running job with a contract."""
    return running(record=queued(spec=replace(SPEC, **(limits or {"max_down_minutes": 10, "max_lost_minutes": 15}))))


def told(record: Job, event: Any, seconds: int) -> Job:
    """The record after an event so many seconds after NOW."""
    return applied(tell(record, event, now=later(seconds)))


def about(record: Job, seconds: int) -> dict[str, Any]:
    """What every event of the job has."""
    return {"at": later(seconds), "attempt": record.attempt}


def stopped(record: Job, kind: EndingKind = EndingKind.CRASHED) -> Job:
    """The job after the failure of a rank, noticed 5 s later."""
    lost = replace(failure(kind), at=later(FAILED_S))
    return told(record, events.RankFailed(**about(record, FAILED_S + 5), failure=lost), FAILED_S + 5)


def ended(record: Job) -> Job:
    """The job 60 s after the failure: all ranks have ended, and its instances are checked."""
    return told(record, events.AllRanksStopped(**about(record, FAILED_S + 60), failure=record.failure), FAILED_S + 60)


def checked(record: Job, seconds: int = 300) -> Job:
    """The job after checks that found nothing."""
    return told(record, events.InstancesChecked(**about(record, FAILED_S + seconds), results=WELL), FAILED_S + seconds)


def runs_again(record: Job, placed: int = 310, runs: int = 400) -> Job:
    """The job after every rank runs again."""
    event = events.JobPlaced(**about(record, FAILED_S + placed), version=record.version, instances=IDS, epochs=(0, 0))
    record = told(record, event, FAILED_S + placed)
    return told(record, events.AllRanksRunning(**about(record, FAILED_S + runs)), FAILED_S + runs)


def continued(record: Job, trained: int, seen: int, kept: int | None = None) -> Job:
    """The job after its training went on at `trained`, which a poll saw at `seen`: seconds after the failure."""
    event = events.TrainingContinued(
        **about(record, FAILED_S + seen),
        sentence="it reports progress",
        trained_at=later(FAILED_S + trained),
        kept_until=None if kept is None else later(FAILED_S - kept),
    )
    return told(record, event, FAILED_S + seen)


def limit(record: Job, seconds: int) -> Any:
    """The decision about the limit of the record, so many seconds after the failure."""
    assert record.limit_at is not None
    event = events.RecoveryLimitPassed(**about(record, FAILED_S + seconds), limit_at=record.limit_at)
    return tell(record, event, now=later(FAILED_S + seconds))


def down(record: Job) -> Downtime:
    """The downtime that the record must have."""
    assert record.downtime is not None
    return record.downtime


def mails(decision: Any) -> list[str]:
    """The subjects of the messages to operators."""
    return [order.subject for order in orders(decision, commands.NotifyOperator)]


# -- the bill ----------------------------------------------------------------------------------------------------------


def test_the_bill_of_an_incident_has_each_phase_and_the_work_that_is_done_again() -> None:
    """From the failure itself to the first training step, not from the decision to the poll."""
    record = continued(runs_again(checked(ended(stopped(bound())))), trained=430, seen=480, kept=120)
    bill = down(record)
    assert bill.by_phase(later(99_999)) == {
        "notice": 5,
        "stop": 55,
        "check": 240,
        "wait": 10,
        "start": 90,
        "first_step": 30,
    }
    assert (bill.down_s(NOW), bill.repeated_s, bill.lost_s(NOW)) == (430, 120, 550)
    assert bill.until == later(FAILED_S + 430) and bill.recovered and not bill.told
    assert record.lost_s == {"unknown": 550} and record.limit_at is None


def test_the_mail_of_a_recovery_has_the_bill() -> None:
    """Down time within its limit, lost time beyond it."""
    record = runs_again(checked(ended(stopped(bound()))))
    event = events.TrainingContinued(
        **about(record, FAILED_S + 480),
        sentence="it reports progress",
        trained_at=later(FAILED_S + 430),
        kept_until=later(FAILED_S - 500),
    )
    (mail,) = orders(tell(record, event, now=later(FAILED_S + 480)), commands.NotifyOperator)
    assert "The job was down for 7 min 10 s: 5 s to notice the failure, 55 s to stop the ranks" in mail.body
    assert "Work of 8 min 20 s since the last checkpoint is done again." in mail.body
    assert "The recovery contract is not kept: lost for 15 min 30 s, 15 min are allowed." in mail.body


def test_a_hang_counts_from_the_last_progress() -> None:
    """The time-out of the hang is a part of the downtime."""
    record = bound()
    event = events.ProgressStopped(**about(record, 2_000), sentence="no progress", since=later(1_400))
    bill = down(told(record, event, 2_000))
    assert bill.since == later(1_400) and bill.by_phase(later(2_000)) == {"notice": 600}


def test_a_failure_of_the_past_does_not_make_the_downtime_begin_before_the_run() -> None:
    """A clock of another machine may be wrong."""
    record = bound()
    early = replace(failure(EndingKind.CRASHED), at=NOW - timedelta(days=1))
    bill = down(told(record, events.RankFailed(**about(record, 50), failure=early), 50))
    assert bill.since == record.running_at


def test_a_second_failure_before_the_training_goes_on_is_the_same_downtime() -> None:
    """The run of the second attempt is a part of it."""
    record = runs_again(checked(ended(stopped(bound()))))
    again = replace(failure(EndingKind.CRASHED), at=later(FAILED_S + 460))
    record = told(record, events.RankFailed(**about(record, FAILED_S + 470), failure=again), FAILED_S + 470)
    bill = down(record)
    assert bill.since == later(FAILED_S) and bill.attempt == 1
    assert bill.by_phase(later(FAILED_S + 480)) == {
        "notice": 5,
        "stop": 55 + 10,
        "check": 240,
        "wait": 10,
        "start": 90,
        "first_step": 70,
    }


def test_a_suspension_within_a_downtime_does_not_count() -> None:
    """The limit moves by its length."""
    record = checked(ended(stopped(bound())))
    suspend = events.SuspendRequested(**about(record, FAILED_S + 320), by="ada", because="lunch")
    record = told(record, suspend, FAILED_S + 320)
    assert record.status is JobStatus.SUSPENDED and record.limit_at is None
    resume = events.ResumeRequested(**about(record, FAILED_S + 4_000), by="ada")
    record = told(record, resume, FAILED_S + 4_000)
    record = runs_again(record, placed=4_020, runs=4_050)
    assert down(record).by_phase(later(FAILED_S + 4_060))["suspended"] == 3_700
    assert down(record).down_s(later(FAILED_S + 4_060)) == 360
    assert record.limit_at == later(FAILED_S + 600 + 3_700)


def test_a_spot_interruption_is_its_own_cause_and_ends_with_the_run() -> None:
    """It has no incident, and without a contract no poll waits for progress."""
    record = running()
    event = events.InstanceLeaving(**about(record, 100), instance_id=IDS[0], sentence="Spot takes it")
    record = told(record, event, 100)
    assert down(record).cause is LossCause.INTERRUPTION
    record = told(record, events.AllRanksStopped(**about(record, 130), failure=None), 130)
    placed = events.JobPlaced(**about(record, 200), version=record.version, instances=IDS, epochs=(0, 0))
    record = told(record, placed, 200)
    record = told(record, events.AllRanksRunning(**about(record, 260)), 260)
    assert not down(record).is_open and record.lost_s == {"interruption": 160}


def test_a_diagnosis_names_the_cause() -> None:
    """If it is decided."""
    record = ended(stopped(bound()))
    found = DiagnosisResult(1, Cause.NETWORK, "job", (), Remedy.RESTART, 90, True, "the network", ())
    record = told(record, events.Diagnosed(**about(record, FAILED_S + 70), conclusion=found), FAILED_S + 70)
    assert down(record).cause is LossCause.NETWORK


def test_a_program_without_progress_is_down_until_its_ranks_run() -> None:
    """Not until the poll a minute later."""
    record = runs_again(checked(ended(stopped(bound()))))
    event = events.TrainingContinued(
        **about(record, FAILED_S + 470), sentence="it has run for 70 s", trained_at=record.running_at
    )
    bill = down(told(record, event, FAILED_S + 470))
    assert bill.down_s(NOW) == 400 and bill.repeated_s is None


def test_a_job_that_fails_for_good_closes_its_bill() -> None:
    """It was down until its end."""
    record = ended(stopped(bound()))
    record = replace(record, attempts_counted=9)
    record = checked(record)
    assert record.status is JobStatus.FAILED and record.limit_at is None
    assert down(record).down_s(NOW) == 300 and not down(record).recovered


steps = st.lists(st.tuples(st.sampled_from(PHASES), st.floats(0.0, 5_000.0, allow_nan=False)), min_size=1, max_size=30)


@given(steps, st.floats(0.0, 1.0), st.floats(0.0, 900.0))
def test_the_phases_add_up_to_the_whole(moves: list[tuple[DownPhase, float]], part: float, more: float) -> None:
    """Whatever the phases and their times are, and with any part of a second."""
    since = NOW + timedelta(seconds=part)
    bill, at = Downtime(1, since, DownPhase.NOTICE, since), since
    for phase, seconds in moves:
        at += timedelta(seconds=seconds)
        bill = bill.in_phase(phase, at)
        whole = int((at - since).total_seconds())
        assert sum(bill.by_phase(at).values()) == whole
    end = at + timedelta(seconds=more)
    closed = bill.closed(end, recovered=True)
    whole = int((end - since).total_seconds())
    assert sum(bill.by_phase(end).values()) == sum(closed.by_phase(NOW).values()) == whole
    assert closed.down_s(NOW) == whole - closed.by_phase(NOW).get("suspended", 0)


# -- the limit ---------------------------------------------------------------------------------------------------------


def test_the_limit_counts_from_the_failure_and_is_due_before_the_deadline() -> None:
    """A job without a contract has none."""
    record = ended(stopped(bound()))
    assert record.limit_at == later(FAILED_S + 600)
    assert next_deadline(record) == later(FAILED_S + 600)
    assert due_at(next_deadline(record), None, ()) == record.limit_at
    assert stopped(running()).limit_at is None


def test_operators_are_told_once_when_the_limit_passes() -> None:
    """Neither a repeated event nor the end of the downtime tells it again."""
    record = ended(stopped(bound()))
    decision = limit(record, 600)
    assert mails(decision) == ["[GPU-RECOVERY][SEV3] sft-1: recovery contract not kept, still down"]
    (mail,) = orders(decision, commands.NotifyOperator)
    assert mail.incident_id == record.incident_id and "It waits to find and check the cause" in mail.body
    after = applied(decision)
    assert after.history[-1].event == "RecoveryLimitPassed" and after.status is record.status
    assert after.limit_at is None and down(after).told
    event = events.RecoveryLimitPassed(**about(after, FAILED_S + 660), limit_at=record.limit_at)
    assert tell(after, event, now=later(FAILED_S + 660)).commands == ()
    record = runs_again(checked(after, 700), placed=710, runs=800)
    assert record.limit_at is None
    closing = events.TrainingContinued(
        **about(record, FAILED_S + 860), sentence="it goes on", trained_at=later(FAILED_S + 820)
    )
    closed = tell(record, closing, now=later(FAILED_S + 860))
    assert mails(closed) == ["[GPU-RECOVERY][SEV4] sft-1: recovered on attempt 2"]


def test_the_message_is_saved_with_the_decision_so_a_crash_neither_loses_nor_repeats_it() -> None:
    """Save before act: the order is in the record, and the limit is gone from it in the same write."""
    after = applied(limit(ended(stopped(bound())), 600))
    (order,) = [one for one in after.commands if isinstance(one.command, commands.NotifyOperator)][-1:]
    assert "contract" in order.command.subject and after.limit_at is None
    stored = decode(Job, {**item_of(after), "commands": []})
    assert stored.limit_at is None and stored.downtime == after.downtime


def test_a_limit_that_passes_while_the_ranks_run_asks_for_progress_first() -> None:
    """The training may have gone on within the limit, and the poll that shows it comes later."""
    record = runs_again(checked(ended(stopped(bound()))), runs=590)
    decision = limit(record, 600)
    assert mails(decision) == [] and orders(decision, commands.ObserveAttempt)
    asked = applied(decision)
    assert asked.limit_at == later(FAILED_S + 600 + ADAPTIVE.recovered_after_s + 30)
    again = events.RecoveryLimitPassed(**about(asked, FAILED_S + 660), limit_at=record.limit_at)
    assert tell(asked, again, now=later(FAILED_S + 660)).outcome is EventOutcome.OUTDATED
    in_time = continued(asked, trained=598, seen=630)
    assert not down(in_time).told and in_time.limit_at is None
    silent = limit(asked, 700)
    assert mails(silent) == ["[GPU-RECOVERY][SEV3] sft-1: recovery contract not kept, still down"]


def test_a_training_that_goes_on_too_late_is_told_with_the_recovery() -> None:
    """Its progress was asked for, and came too late."""
    record = runs_again(checked(ended(stopped(bound()))), runs=590)
    asked = applied(limit(record, 600))
    late = continued(asked, trained=640, seen=650)
    assert down(late).told and lengths.broken_limits(late.spec, down(late), NOW)


def test_a_record_of_an_older_release_has_no_downtime() -> None:
    """It is read with the defaults."""
    item = item_of(running())
    for name in ("downtime", "lost_s", "limit_at"):
        del item[name]
    for name in ("max_down_minutes", "max_lost_minutes", "checkpoint_every_s", "reports_progress"):
        del item["spec"][name]
    record = decode(Job, {**item, "commands": []})
    assert record.downtime is None and record.lost_s == {} and record.limit_at is None


ROWS = [status for status, kind in TRANSITIONS if kind is events.RecoveryLimitPassed]


@pytest.mark.parametrize("status", ROWS)
def test_every_status_in_which_a_job_is_down_tells_that_the_limit_has_passed(status: JobStatus) -> None:
    """In each row of the table."""
    record = replace(ended(stopped(bound())), status=status, limit_at=later(FAILED_S + 601))
    after = applied(limit(record, 700))
    assert after.status is status and down(after).told


def test_no_status_of_a_downtime_is_missing() -> None:
    """A queued job was never down, and a suspended job has no limit."""
    assert {*ROWS} == {*JobStatus} - TERMINAL - {JobStatus.QUEUED, JobStatus.SUSPENDED}


def test_a_wait_for_a_repair_is_its_own_phase() -> None:
    """It ends with the repair, though the status stays."""
    record = replace(checked(ended(stopped(bound()))), repairing=IDS[:1])
    record = replace(record, downtime=down(record).in_phase(DownPhase.REPAIR, later(FAILED_S + 300)))
    event = events.RepairEnded(**about(record, FAILED_S + 500), instance_id=IDS[0], healed=True, sentence="healed")
    after = told(record, event, FAILED_S + 500)
    assert down(after).by_phase(later(FAILED_S + 520)) == {
        "notice": 5,
        "stop": 55,
        "check": 240,
        "repair": 200,
        "wait": 20,
    }
    assert isinstance(after.limit_at, datetime)
