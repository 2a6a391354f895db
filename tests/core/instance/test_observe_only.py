"""Observe-only: everything is worked out and told, nothing is done, and what is told is what would have been done."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from gpu_recovery.core import commands, events
from gpu_recovery.core.fleet import Pause
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.health_signals import DepartureKind
from gpu_recovery.core.instance.record import IN_USE, Instance, InstanceStatus, Interruption
from gpu_recovery.core.job.record import Job, JobStatus, StopPurpose
from gpu_recovery.core.state_machine import Decision, EventOutcome
from gpu_recovery.core.task import EndingKind

from tests.core import all_events
from tests.core.all_events import Edge
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
OUT_OF_USE = (InstanceStatus.REBOOTING, InstanceStatus.REPLACING, InstanceStatus.QUARANTINED)
TOUCHING = (
    commands.DrainInstance,
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


def _given(edge: Edge) -> list[Any]:
    return [one.command for one in edge.after.commands[len(edge.before.commands) :]]


# -- of instances ------------------------------------------------------------------------------------------------------


def test_no_move_touches_a_machine(instance_edges: list[Edge]) -> None:
    """Not one order that changes anything, whatever is told; a person's quarantine and release are done."""
    seen = 0
    for edge in instance_edges:
        if edge.policy.observe_only and not isinstance(edge.event, PERSON):
            seen += 1
            assert not [one for one in _given(edge) if isinstance(one, TOUCHING)], (edge.before.status, edge.event)
    assert seen > 100


def test_the_system_takes_nothing_out_of_use_by_itself(instance_edges: list[Edge]) -> None:
    """What works, works on; only a person's word leads to QUARANTINED."""
    for edge in instance_edges:
        if edge.policy.observe_only and edge.before.status in IN_USE and edge.after.status in OUT_OF_USE:
            assert isinstance(edge.event, events.QuarantineRequested)


def test_what_is_told_is_what_the_same_event_does_under_the_same_policy_without_it(
    instance_edges: list[Edge],
) -> None:
    """The status and every order by name, for each move that would take an instance out of use."""
    compared = set()
    works = {all_events.instance_signature(edge.before): edge for edge in instance_edges if _is_observed_at_work(edge)}
    for edge in works.values():
        for (at, event), fleet in product(all_events.anything_for_instance(edge.before, edge.at), (FLEET, PAUSED)):
            acting = tell(edge.before, event, replace(edge.policy, observe_only=False), at, fleet)
            if isinstance(event, PERSON) or acting.record.status not in OUT_OF_USE:
                continue
            names = [type(one.command).__name__ for one in acting.commands if not isinstance(one.command, UNTOLD)]
            orders_ = ", ".join(names) or "none"
            would = f"it would be {acting.record.status}: {acting.reason}; the orders would be {orders_}"
            decision = tell(edge.before, event, edge.policy, at, fleet)
            assert decision.reason == f"observe-only: {would}"
            assert [one for one in orders(decision, commands.NotifyOperator) if would in one.body]
            assert decision.record.status is InstanceStatus.AVAILABLE
            compared.add((edge.before.status, acting.record.status))
    assert compared == {(before, after) for before in IN_USE for after in OUT_OF_USE}


def _is_observed_at_work(edge: Edge) -> bool:
    return edge.policy.observe_only and edge.before.status in IN_USE


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


def test_every_instance_that_is_left_alone_is_thought_of_later_or_not_at_all(instance_edges: list[Edge]) -> None:
    """A deadline that is over when it is set would bring the same message every minute."""
    for edge in instance_edges:
        withheld = edge.policy.observe_only and edge.after.reason.startswith("observe-only")
        if withheld and edge.before.status is InstanceStatus.AVAILABLE and edge.after.reason != edge.before.reason:
            assert edge.after.deadline_at is None or edge.after.deadline_at > edge.at


def test_nothing_is_blamed_and_nobody_is_under_repair(instance_edges: list[Edge]) -> None:
    """What is not done uses up no budget and opens no breaker."""
    for edge in instance_edges:
        if edge.policy.observe_only:
            assert not edge.after.under_repair and edge.after.blamed_at is None
            assert (edge.after.need, edge.after.held, edge.after.epoch) == (None, None, 0)


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


def _is_not_recovery(edge: Edge) -> bool:
    """A person's cancel, a launch of ours that is rolled back, and the user's own time limit are no recovery."""
    if isinstance(edge.event, events.CancelRequested | events.LaunchRefused | events.AttemptLaunched):
        return True
    status = edge.before.status
    if isinstance(edge.event, events.RankSeen):
        return bool(status is JobStatus.STOPPING)
    overdue = isinstance(edge.event, events.JobDeadlineReached)
    return overdue and status in (JobStatus.SUBMITTING, JobStatus.RUNNING, JobStatus.STOPPING)


def test_no_gang_is_stopped_for_a_failure(job_edges: list[Edge]) -> None:
    """No rank that failed, no instance that is sick, leaving or late stops a gang, checks it or launches it anew."""
    seen = 0
    for edge in job_edges:
        if not edge.policy.observe_only or _is_not_recovery(edge):
            continue
        seen += 1
        assert not [one for one in _given(edge) if isinstance(one, commands.StopAttempt | commands.CheckInstances)], (
            edge.before.status,
            edge.event,
        )
    assert seen > 100


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
