"""One incident is one thread: opened once, escalated while it is open, resolved once, and never a storm of them."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from gpu_recovery.core import events
from gpu_recovery.core.commands import NotifyOperator, PublishEvent
from gpu_recovery.core.fleet import Fleet, budget
from gpu_recovery.core.health_check import CheckOutcome, Verdict
from gpu_recovery.core.health_signals import DepartureKind, Ec2InstanceState, HealthKind, HealthStatus
from gpu_recovery.core.instance import state_machine
from gpu_recovery.core.instance.record import Instance, InstanceStatus
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.notifications.template import Phase
from gpu_recovery.core.policy import RecoveryPolicy, policy_from
from gpu_recovery.core.state_machine import EventOutcome
from gpu_recovery.core.task import EndingKind
from hypothesis import given
from hypothesis import strategies as st

from tests.core import all_events
from tests.core.build import (
    ADAPTIVE,
    CLASSIC,
    IDS,
    NOW,
    applied,
    available,
    check_request,
    claimed,
    diagnosing,
    failure,
    later,
    orders,
    placed,
    running,
    stopping,
    tell,
    verdict_of,
)
from tests.core.notifications.incident_thread import Thread, own

REPLACING = policy_from({"replace": True})
OBSERVING = policy_from({"observe_only": True})
TIGHT = policy_from({"attempts_max": 2, "uncounted_relaunches_max": 2, "reboots_max": 1, "breaker_instances_min": 1})
STEPS = st.lists(st.tuples(st.integers(0, 9_999), st.integers(1, 9_000)), min_size=1, max_size=40)


def of_breaker(decision: Any) -> list[NotifyOperator]:
    return [one for one in orders(decision, NotifyOperator) if one.incident_id.startswith("breaker/")]


# -- every story -------------------------------------------------------------------------------------------------------


def anything(record: Instance, now: datetime) -> list[tuple[datetime, Any]]:
    """What may be told to an instance, with every word of the watchers, of EC2 and of people."""
    told: list[Any] = [
        *(
            events.HealthReported(at=now, kind=kind, status=status, since=now)
            for kind in HealthKind
            for status in (HealthStatus.OK, HealthStatus.IMPAIRED)
        ),
        *(
            events.DepartureAnnounced(
                at=now,
                kind=kind,
                source=kind,
                leaves_at=now + timedelta(days=days),
                sentence="EC2 will take it away",
                called_off=off,
            )
            for kind in DepartureKind
            for days in (0, 3)
            for off in (False, True)
        ),
        *(events.MachineSeen(at=now, state=state) for state in (Ec2InstanceState.STOPPED, Ec2InstanceState.TERMINATED)),
        *(events.QuarantineRequested(at=now, by="ada", because=because) for because in ("", "a cable")),
        events.RepairHeld(at=now, epoch=record.epoch, sentence="its maintenance tag prohibits repairs"),
        *[events.ReleaseRequested(at=now, by="ada")] * 4,
    ]
    return [*all_events.anything_for_instance(record, now), *((now, event) for event in told)]


@pytest.mark.parametrize("policy", [ADAPTIVE, CLASSIC, REPLACING, OBSERVING, TIGHT])
@given(steps=STEPS)
def test_an_instance_is_one_thread_per_incident(policy: RecoveryPolicy, steps: list[tuple[int, int]]) -> None:
    """Whatever happens to it, and whatever the brakes do meanwhile: what is open is what the record says is open."""
    record, now, thread, breaker = available(), NOW, Thread(), Thread()
    fleet = Fleet(gpu_instances=4)
    for pick, seconds in steps:
        now += timedelta(seconds=seconds)
        told = anything(record, now)
        at, event = told[pick % len(told)]
        now = max(now, at)
        minds = state_machine.needs_fleet_limits(record, event)
        decision = state_machine.decide(record, event, policy, now, fleet if minds else None)
        if decision.outcome is not EventOutcome.APPLIED:
            continue
        thread.hears(own(decision))
        breaker.hears(of_breaker(decision))
        record, fleet = decision.record, decision.fleet or fleet
        assert not thread.wrong and not breaker.wrong, (thread.wrong, breaker.wrong)
        assert thread.open_id == record.incident_id
        assert breaker.open_id == fleet.incident_id
        if record.status is InstanceStatus.GONE or (
            record.status is InstanceStatus.AVAILABLE and not record.avoid_reason
        ):
            assert not record.incident_id, f"{record.status}: {record.reason}"


@pytest.mark.parametrize("policy", [ADAPTIVE, CLASSIC, TIGHT])
@given(first=st.integers(0, 2), steps=STEPS)
def test_a_job_is_one_thread_per_incident(policy: RecoveryPolicy, first: int, steps: list[tuple[int, int]]) -> None:
    """From the failure to the end; a job that has failed leaves its incident open, for somebody must act."""
    record, now, thread = all_events.first_jobs(policy)[first], NOW, Thread()
    for pick, seconds in steps:
        now += timedelta(seconds=seconds)
        told = all_events.anything_for_job(record, now)
        at, event = told[pick % len(told)]
        now = max(now, at)
        decision = tell(record, event, policy, now)
        if decision.outcome is not EventOutcome.APPLIED:
            continue
        thread.hears(own(decision))
        before, record = record, decision.record
        assert not thread.wrong, thread.wrong
        assert thread.open_id == (record.incident_id or "")
        if record.status is JobStatus.FAILED and before.status is not JobStatus.FAILED:
            (said,) = [one for one in own(decision) if ": FAILED" in one.subject]
            assert said.incident_id == record.incident_id
        if record.status in (JobStatus.SUCCEEDED, JobStatus.CANCELED, JobStatus.RUNNING):
            assert record.incident_id is None


# -- single stories ----------------------------------------------------------------------------------------------------


def _heard(record: Any, *told: tuple[int, Any], policy: RecoveryPolicy = ADAPTIVE) -> tuple[Any, list[NotifyOperator]]:
    """The record after the events, each (seconds after NOW, event of the record so far), and what was said."""
    said: list[NotifyOperator] = []
    for seconds, make in told:
        at = later(seconds)
        decision = tell(record, make(record, at) if callable(make) else make, policy, at)
        record = applied(decision)
        said += own(decision)
    return record, said


def _announced(at: datetime, **changes: Any) -> events.DepartureAnnounced:
    usual = {
        "kind": DepartureKind.RETIREMENT,
        "source": "event-1",
        "leaves_at": later(10 * 86_400),
        "sentence": "its host is to be retired",
    }
    return events.DepartureAnnounced(at=at, **{**usual, **changes})


def test_held_then_given_to_a_person_then_released_is_one_thread() -> None:
    """The epoch rises and the status changes, the id does not."""
    machine = claimed("other-1")
    machine = applied(tell(machine, check_request()))
    record, said = _heard(
        machine,
        (0, lambda one, at: verdict_of(one, CheckOutcome.REBOOT)),
        (21_600, lambda one, at: events.InstanceDeadlineReached(at=at, deadline_at=one.deadline_at)),
        (22_000, lambda one, at: events.ReleaseRequested(at=at, by="ada")),
        (22_100, lambda one, at: verdict_of(one, CheckOutcome.HEALTHY)),
    )
    assert [one.phase for one in said] == [Phase.OPENED, Phase.ESCALATED, Phase.RESOLVED]
    assert len({one.incident_id for one in said}) == 1
    assert (record.status, record.incident_id) == (InstanceStatus.AVAILABLE, "")


def test_a_second_quarantine_is_another_incident() -> None:
    """Also without a repair in between, when nothing but the version tells them apart."""
    ask = (0, lambda one, at: events.QuarantineRequested(at=at, by="ada"))
    free = (10, lambda one, at: events.ReleaseRequested(at=at, by="ada"))
    passes = (20, lambda one, at: verdict_of(one, CheckOutcome.HEALTHY))
    _, said = _heard(available(), ask, free, passes, (30, ask[1]))
    assert [one.phase for one in said] == [Phase.OPENED, Phase.RESOLVED, Phase.OPENED]
    assert said[0].incident_id == said[1].incident_id != said[2].incident_id


def test_a_reminder_escalates_the_incident_it_reminds_of() -> None:
    """Daily, until somebody acts."""
    due = lambda one, at: events.InstanceDeadlineReached(at=at, deadline_at=one.deadline_at)  # noqa: E731
    quarantine = (0, lambda one, at: events.QuarantineRequested(at=at, by="ada"))
    _, said = _heard(available(), quarantine, (86_400, due), (2 * 86_400, due))
    assert [one.phase for one in said] == [Phase.OPENED, Phase.ESCALATED, Phase.ESCALATED]
    assert "2026-11-24 03:00 UTC" in said[2].body


@pytest.mark.parametrize("kind", [DepartureKind.MAINTENANCE, DepartureKind.RETIREMENT])
def test_an_announcement_that_is_called_off_is_resolved(kind: DepartureKind) -> None:
    """Else the thread would stay open for ever."""
    record, said = _heard(
        available(),
        (0, lambda one, at: _announced(at, kind=kind)),
        (60, lambda one, at: _announced(at, kind=kind, called_off=True)),
    )
    assert [one.phase for one in said] == [Phase.OPENED, Phase.RESOLVED]
    assert record.incident_id == ""


@pytest.mark.parametrize("kind", [DepartureKind.INTERRUPTION, DepartureKind.REBALANCE])
def test_what_nobody_can_do_anything_about_is_not_mailed(kind: DepartureKind) -> None:
    """A fleet of Spot instances would ring all night; the bus and `explain` have it."""
    _, said = _heard(available(), (0, lambda one, at: _announced(at, kind=kind, leaves_at=at)))
    assert said == []


def test_a_watchers_word_is_one_thread_until_the_same_watcher_takes_it_back() -> None:
    """Repeated it is no news; another watcher's word escalates."""

    def says(kind: HealthKind, status: HealthStatus) -> Any:
        return lambda one, at: events.HealthReported(at=at, kind=kind, status=status, since=at)

    agent, daemon = HealthKind.AGENT_CONNECTIVITY, HealthKind.DAEMON
    record, said = _heard(
        available(),
        (1, says(agent, HealthStatus.IMPAIRED)),
        (2, says(agent, HealthStatus.IMPAIRED)),
        (3, says(daemon, HealthStatus.IMPAIRED)),
        (4, says(agent, HealthStatus.OK)),
        (5, says(daemon, HealthStatus.OK)),
    )
    assert [one.phase for one in said] == [Phase.OPENED, Phase.ESCALATED, Phase.RESOLVED]
    assert record.incident_id == ""


def test_an_impaired_instance_that_passes_its_check_is_told_of() -> None:
    """Nothing is placed on it, so somebody must know why."""
    word = lambda one, at: events.HealthReported(  # noqa: E731
        at=at, kind=HealthKind.ACCELERATED_COMPUTE, status=HealthStatus.IMPAIRED, since=at, sentence="XID 79", xid=79
    )
    record, said = _heard(available(), (1, word), (2, lambda one, at: verdict_of(one, CheckOutcome.HEALTHY)))
    assert record.status is InstanceStatus.AVAILABLE
    assert [one.phase for one in said] == [Phase.OPENED]
    assert "ACCELERATED_COMPUTE is IMPAIRED: XID 79" in said[0].body


def test_a_repair_that_begins_and_is_held_back_again_is_told_once() -> None:
    """A maintenance tag is seen only when it comes to acting; told at each try it would be a storm."""
    machine = applied(tell(claimed(), check_request()))
    said: list[NotifyOperator] = []
    for n in range(4):
        at = later(3_000 * n)
        machine = applied(tell(machine, verdict_of(machine, CheckOutcome.REBOOT), now=at))
        assert machine.status is InstanceStatus.REBOOTING
        held = tell(machine, events.RepairHeld(at=at, epoch=machine.epoch, sentence="a maintenance tag"), now=at)
        machine = applied(held)
        look = machine.look_at
        afresh = tell(machine, events.InstanceLookDue(at=look, look_at=look), now=look)
        machine = applied(afresh)
        assert machine.status is InstanceStatus.CHECKING
        said += [*own(held), *own(afresh)]
    assert [one.phase for one in said] == [Phase.OPENED]


def test_an_instance_that_leaves_ends_its_thread() -> None:
    """A terminated machine needs nobody."""
    record, said = _heard(
        available(),
        (0, lambda one, at: events.QuarantineRequested(at=at, by="ada")),
        (9, lambda one, at: events.MachineSeen(at=at, state=Ec2InstanceState.TERMINATED)),
    )
    assert [one.phase for one in said] == [Phase.OPENED, Phase.RESOLVED]
    assert (record.status, record.incident_id) == (InstanceStatus.GONE, "")


def test_a_job_that_fails_again_before_it_recovered_sends_no_second_mail() -> None:
    """Operators know of the recovery, and hear how it ends. The bus has every start."""
    first = failure(EndingKind.CRASHED)
    record = diagnosing(first)
    checks = events.InstancesChecked(at=NOW, attempt=1, results={})
    record = placed(applied(tell(record, checks)), ids=IDS)
    decision = tell(record, events.RankFailed(at=NOW, attempt=2, failure=first))
    assert own(decision) == [] and decision.record.incident_id == "sft-1--a01"
    assert "Recovery Started" in [one.detail_type for one in orders(decision, PublishEvent)]


def test_a_canceled_job_closes_its_incident() -> None:
    """Nobody waits for the end of a recovery that was called off."""
    record = stopping(failure(EndingKind.CRASHED))
    record = applied(tell(record, events.CancelRequested(at=NOW, attempt=1, by="ada")))
    decision = tell(record, events.AllRanksStopped(at=NOW, attempt=1, failure=record.failure))
    (said,) = own(decision)
    assert (said.phase, said.incident_id) == (Phase.RESOLVED, "sft-1--a01")
    assert decision.record.incident_id is None


def test_a_job_that_ends_well_in_an_incident_says_so_on_the_bus_too() -> None:
    """A recovery that was told to have started is told to have ended."""
    record = replace(running(), incident_id="sft-1--a01")
    decision = tell(record, events.AllRanksStopped(at=NOW, attempt=1))
    assert [one.phase for one in own(decision)] == [Phase.RESOLVED]
    assert "Recovery Succeeded" in [one.detail_type for one in orders(decision, PublishEvent)]


# -- no storms ---------------------------------------------------------------------------------------------------------


def _gang_blamed(
    size: int, outcome: CheckOutcome, policy: RecoveryPolicy = ADAPTIVE
) -> tuple[list[NotifyOperator], Any]:
    """What operators hear while every instance of a gang is checked and blamed, one a second."""
    said: list[NotifyOperator] = []
    fleet = Fleet(gpu_instances=size)
    for n in range(size):
        machine = replace(available(), instance_id=f"i-{n:08x}")
        machine = applied(tell(machine, check_request(), policy, later(n)))
        assert machine.check is not None
        end = events.CheckEnded(at=later(n), check_id=machine.check.check_id, verdict=Verdict(outcome, "XID 79"))
        decision = tell(machine, end, policy, later(n), fleet)
        said += orders(decision, NotifyOperator)
        fleet = decision.fleet or fleet
    return said, fleet


@pytest.mark.parametrize("outcome", [CheckOutcome.REBOOT, CheckOutcome.REPLACE])
@pytest.mark.parametrize("size", [2, 8, 64, 500])
def test_a_gang_of_bad_instances_is_no_storm(size: int, outcome: CheckOutcome) -> None:
    """Beside the job's own thread: at most as many instances as may be under repair at once, and the breaker's."""
    said, fleet = _gang_blamed(size, outcome)
    threads = {one.incident_id for one in said}
    breaker = {one for one in threads if one.startswith("breaker/")}
    assert len(threads - breaker) <= budget(fleet, ADAPTIVE)
    assert len(breaker) <= 1 and len(said) == len(threads)
    assert bool(breaker) == (fleet.opened_at is not None) == (size > 2)


def test_a_single_bad_instance_is_told_of() -> None:
    """Keeping quiet is for storms."""
    said, _ = _gang_blamed(1, CheckOutcome.REPLACE)
    assert [one.phase for one in said] == [Phase.OPENED]


def test_who_is_held_by_the_brakes_is_silent_and_who_is_held_by_a_job_is_not() -> None:
    """The brakes have a thread and a verb of their own."""
    busy = replace(Fleet(gpu_instances=4), repairing=frozenset({"i-0other"}))
    for claims, expected in ((), 0), (("other-1",), 1):
        machine = claimed(*claims) if claims else available()
        machine = applied(tell(machine, check_request()))
        decision = tell(machine, verdict_of(machine, CheckOutcome.REBOOT), fleet=busy)
        assert decision.record.held is not None
        assert len(own(decision)) == expected


def test_what_the_brakes_kept_quiet_about_is_said_at_the_next_reminder() -> None:
    """A day later nobody else would."""
    opened = Fleet(gpu_instances=64, opened_at=NOW, opened_because="many", incident_id="breaker/x")
    machine = applied(tell(claimed(), check_request()))
    decision = tell(machine, verdict_of(machine, CheckOutcome.REPLACE), fleet=opened)
    machine = applied(decision)
    assert (own(decision), machine.status, machine.incident_id) == ([], InstanceStatus.QUARANTINED, "")
    due = events.InstanceDeadlineReached(at=machine.deadline_at, deadline_at=machine.deadline_at)
    reminder = tell(machine, due, now=machine.deadline_at, fleet=Fleet(gpu_instances=64))
    assert [one.phase for one in own(reminder)] == [Phase.OPENED]


def test_a_person_is_told_on_the_bus_even_where_no_mail_is_sent() -> None:
    """Programs do not mind a storm, and they may have to act on each."""
    opened = Fleet(gpu_instances=64, opened_at=NOW, opened_because="many", incident_id="breaker/x")
    machine = applied(tell(claimed(), check_request()))
    for fleet in (opened, Fleet(gpu_instances=64)):
        decision = tell(machine, verdict_of(machine, CheckOutcome.REPLACE), fleet=fleet)
        (needed,) = [o for o in orders(decision, PublishEvent) if o.detail_type == "Operator Action Required"]
        assert needed.data["incident_id"] == (decision.record.incident_id or None)
        assert bool(own(decision)) == bool(needed.data["incident_id"])
