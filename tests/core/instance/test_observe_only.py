"""Observe-only: everything is worked out and told, nothing is done, and what is told is what would have been done."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from gpu_recovery.core import commands, events
from gpu_recovery.core.fleet import Pause
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.health_signals import DepartureKind
from gpu_recovery.core.instance.record import Instance, InstanceStatus, Interruption
from gpu_recovery.core.job.record import Job, JobStatus, StopPurpose
from gpu_recovery.core.state_machine import Decision, EventOutcome
from gpu_recovery.core.task import EndingKind

from tests.core import all_events
from tests.core.build import (
    ADAPTIVE,
    FLEET,
    IDS,
    NOW,
    applied,
    available,
    checking,
    claimed,
    failure,
    later,
    observed,
    orders,
    placed,
    queued,
    rebooting,
    running,
    tell,
    verdict_of,
    verifying,
)

ACTING = replace(ADAPTIVE, replace=True)
OBSERVED = replace(ACTING, observe_only=True)
PAUSED = replace(FLEET, pause=Pause("ada", "moving house", NOW))
OUT_OF_USE = (InstanceStatus.RESETTING, InstanceStatus.REBOOTING, InstanceStatus.REPLACING, InstanceStatus.QUARANTINED)
TOUCHING = (
    commands.DrainInstance,
    commands.ResetGpus,
    commands.RebootInstance,
    commands.ReplaceInstance,
    commands.StartInstance,
    commands.DeregisterInstance,
)
UNTOLD = (
    commands.NotifyOperator,
    commands.PublishEvent,
    commands.ReportCheck,
    commands.PokeScheduler,
    commands.StopCheck,
)
PERSON = (events.QuarantineRequested, events.ReleaseRequested)


# -- of instances ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [rebooting, verifying], ids=["rebooting", "verifying"])
def test_switched_on_in_the_middle_of_a_repair_nothing_more_is_done(make: Any) -> None:
    """Whatever the machine is told from then on, and it does not work again without proof for that."""
    for at, event in all_events.anything_for_instance(make(ACTING), NOW):
        decision = tell(make(ACTING), event, OBSERVED, at)
        if isinstance(event, PERSON):
            continue
        assert not [one for one in decision.commands if isinstance(one.command, TOUCHING)], event
        assert decision.record.epoch == make(ACTING).epoch, "a repair that nobody was asked for"
        if decision.record.status is InstanceStatus.AVAILABLE:
            assert isinstance(event, events.CheckEnded) and make is verifying
            assert event.verdict.outcome is CheckOutcome.HEALTHY and event.verdict.boot_id != "boot-1"


def test_a_released_instance_that_fails_its_check_goes_back_to_its_person() -> None:
    """It was out of use by a person's word; nothing makes it pass."""
    record = applied(tell(available(), events.QuarantineRequested(at=NOW, by="ada"), OBSERVED))
    record = applied(tell(record, events.ReleaseRequested(at=later(1), by="ada"), OBSERVED, later(1)))
    decision = tell(record, verdict_of(record, CheckOutcome.REBOOT), OBSERVED, later(2))
    assert decision.record.status is InstanceStatus.QUARANTINED
    assert not orders(decision, commands.DrainInstance) and not decision.record.drained


def test_what_is_withheld_at_its_time_is_said_once_not_each_minute() -> None:
    """A retirement that is due: the deadline does not stand still, and a reservation ends with it."""
    departure = Interruption(DepartureKind.RETIREMENT, "event-1", later(60), "its host is retired")
    record = available(departure=departure, deadline_at=NOW, reserved_for="sft-1")
    event = events.InstanceDeadlineReached(at=NOW, deadline_at=NOW)
    decision = tell(record, event, OBSERVED)
    assert "it would be REPLACING" in decision.reason
    assert decision.record.deadline_at == later(ADAPTIVE.repaired_reservation_s)
    last = tell(
        decision.record,
        events.InstanceDeadlineReached(
            at=later(ADAPTIVE.repaired_reservation_s), deadline_at=later(ADAPTIVE.repaired_reservation_s)
        ),
        OBSERVED,
        later(ADAPTIVE.repaired_reservation_s),
    )
    assert (last.record.deadline_at, last.record.reserved_for) == (None, "")


def test_a_job_hears_its_check_and_that_nothing_is_repaired_for_it() -> None:
    """Else it would wait for a repair that never comes; one that waited before the switch hears the end."""
    record = checking(OBSERVED)
    decision = tell(record, verdict_of(record, CheckOutcome.REBOOT), OBSERVED)
    assert [(one.outcome, one.repairing) for one in orders(decision, commands.ReportCheck)] == [("REBOOT", False)]
    held = applied(tell(rebooting(), events.RepairHeld(at=NOW, epoch=1, sentence="kept back")))
    look = events.InstanceLookDue(at=held.look_at, look_at=held.look_at)
    fresh = applied(tell(held, look, ADAPTIVE, held.look_at))
    assert fresh.status is InstanceStatus.CHECKING
    flipped = tell(fresh, verdict_of(fresh, CheckOutcome.REBOOT), OBSERVED, held.look_at)
    assert [(one.job_id, one.event.healed) for one in orders(flipped, commands.TellJob)] == [("sft-1", False)]
    assert flipped.record.also_waiting == ()


def test_a_wish_to_end_a_rank_is_told_once() -> None:
    """It may be delivered twice; the second says nothing that is not said."""
    wish = events.RepairRequested(at=NOW, job_id="sft-1", attempt=1, sentence="a rank cannot be stopped")
    record = applied(tell(claimed(), wish, OBSERVED))
    assert "it would be REBOOTING" in record.reason and record.claims
    moved = applied(tell(record, observed(2, agent_connected=False), OBSERVED))
    assert tell(moved, wish, OBSERVED, later(9)).outcome is EventOutcome.IGNORED


# -- of jobs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "event",
    [
        events.RankFailed(at=NOW, attempt=1, failure=failure(EndingKind.FAILED)),
        events.RankFailed(at=NOW, attempt=1, failure=failure(EndingKind.INTERRUPTED)),
        events.InstanceNeedsRepair(at=NOW, attempt=1, instance_id=IDS[0], sentence="i-0a1 needs reboot"),
        events.InstanceLeaving(at=NOW, attempt=1, instance_id=IDS[0], sentence="i-0a1 is retired"),
    ],
    ids=lambda event: type(event).__name__,
)
@pytest.mark.parametrize("make", [lambda policy: placed(queued(policy), policy), running], ids=["launching", "running"])
def test_a_job_says_what_would_have_been_done_to_it(make: Any, event: Any) -> None:
    """In the words of the decision that the same policy takes without it, once, and in its message."""
    acting = tell(make(ACTING), event, ACTING)
    decision: Decision[Job] = tell(make(OBSERVED), event, OBSERVED)
    assert acting.record.status is JobStatus.STOPPING
    assert decision.record.status is make(OBSERVED).status
    assert f"it would be {acting.record.status}: {acting.reason}; the orders would be StopAttempt" in decision.reason
    (notice,) = orders(decision, commands.NotifyOperator)
    assert "it would be STOPPING" in notice.body
    assert tell(decision.record, event, OBSERVED, later(5)).outcome is EventOutcome.IGNORED


def test_a_job_that_does_not_start_is_reported_once_and_waits_on() -> None:
    """Its deadline moves; the next half hour says nothing new."""
    record = applied(tell(placed(queued(OBSERVED), OBSERVED), events.AttemptLaunched(at=NOW, attempt=1), OBSERVED))
    said = 0
    for _ in range(4):
        at = record.deadline_at
        decision = tell(record, events.JobDeadlineReached(at=at, attempt=1, deadline_at=at), OBSERVED, at)
        record = applied(decision)
        assert record.status is JobStatus.SUBMITTED and record.deadline_at == at + timedelta(
            seconds=OBSERVED.start_timeout_s
        )
        said += len(orders(decision, commands.NotifyOperator))
    assert said == 1


def test_a_persons_cancel_stops_the_gang_all_the_same() -> None:
    """What people ask for is done."""
    decision = tell(running(OBSERVED), events.CancelRequested(at=NOW, attempt=1, by="ada"), OBSERVED)
    assert decision.record.stop_purpose is StopPurpose.CANCEL and orders(decision, commands.StopAttempt)


def test_a_persons_quarantine_is_done_all_the_same() -> None:
    """Drained and taken out of use, with the reason given."""
    record: Instance = available()
    decision = tell(record, events.QuarantineRequested(at=NOW, by="ada", because="a fan"), OBSERVED, NOW, FLEET)
    assert decision.record.status is InstanceStatus.QUARANTINED and orders(decision, commands.DrainInstance)
    assert decision.reason == "quarantined by ada: a fan"
