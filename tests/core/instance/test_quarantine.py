"""What people say of instances: quarantine and release, in every status, with work on them and repairs held."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from gpu_recovery.core import commands, events
from gpu_recovery.core.fleet import Breaker, Fleet, with_repair_begun
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.health_signals import Ec2InstanceState
from gpu_recovery.core.instance.record import Claim, Instance, InstanceStatus
from gpu_recovery.core.state_machine import Decision, EventOutcome

from tests.core.build import (
    ADAPTIVE,
    FLEET,
    IDS,
    NOW,
    applied,
    available,
    check_request,
    checking,
    claimed,
    later,
    observed,
    orders,
    rebooting,
    tell,
    verdict_of,
    verifying,
)

S = InstanceStatus
FULL = Fleet(gpu_instances=5, repairing=frozenset({"i-other"}))
ON = replace(ADAPTIVE, replace=True)


def _quarantine(record: Instance, seconds: int = 5, fleet: Fleet = FLEET) -> Decision[Any]:
    order = events.QuarantineRequested(at=later(seconds), by="ada", because="a fan is loud")
    return tell(record, order, ADAPTIVE, later(seconds), fleet)


def _release(record: Instance, seconds: int = 60, fleet: Fleet = FLEET) -> Decision[Any]:
    return tell(record, events.ReleaseRequested(at=later(seconds), by="ada"), ADAPTIVE, later(seconds), fleet)


def _ended(decision: Decision[Any]) -> list[tuple[str, bool]]:
    told = orders(decision, commands.TellJob)
    return [(one.job_id, one.event.healed) for one in told if isinstance(one.event, events.RepairEnded)]


def _replacing() -> Instance:
    record = checking(ON)
    return applied(tell(record, verdict_of(record, CheckOutcome.REPLACE), ON))


def _held(**fields: Any) -> Instance:
    record = checking(**fields)
    return applied(tell(record, verdict_of(record, CheckOutcome.REBOOT), ADAPTIVE, NOW, FULL))


@pytest.mark.parametrize(
    ("make", "hears"),
    [
        (available, []),
        (claimed, []),
        (checking, []),
        (rebooting, [("sft-1", False)]),
        (_replacing, [("sft-1", False)]),
        (verifying, [("sft-1", False)]),
        (_held, [("sft-1", False)]),
    ],
    ids=["available", "claimed", "checking", "rebooting", "replacing", "verifying", "held"],
)
def test_a_person_may_quarantine_any_instance_and_whoever_waits_for_it_hears(
    make: Any, hears: list[tuple[str, bool]]
) -> None:
    """Nothing of it is under way any more, it is drained once, and its claims stay until their ranks have ended."""
    record = make()
    decision = _quarantine(record)
    after = decision.record
    assert (after.status, after.reason) == (S.QUARANTINED, "quarantined by ada: a fan is loud")
    assert (after.check, after.reboot, after.need, after.held, after.look_at) == (None, None, None, None, None)
    assert _ended(decision) == hears
    assert [one.outcome for one in orders(decision, commands.ReportCheck)] == (
        ["INCONCLUSIVE"] if record.status is S.CHECKING else []
    )
    assert bool(orders(decision, commands.StopCheck)) is (record.check is not None)
    assert after.claims == record.claims and after.deadline_at is not None
    assert after.drained


def test_a_quarantined_instance_is_not_quarantined_again() -> None:
    """Its reason does not grow with every person who asks."""
    record = applied(_quarantine(available()))
    assert _quarantine(record, 9).outcome is EventOutcome.IGNORED


def test_a_quarantine_from_before_its_release_is_over() -> None:
    """It was carried out; delivered again it must not undo what the person has said since."""
    asked = events.QuarantineRequested(at=later(5), by="ada")
    record = applied(tell(available(), asked, now=later(5)))
    record = applied(_release(record))
    record = applied(tell(record, verdict_of(record, CheckOutcome.HEALTHY), now=later(90)))
    assert record.status is S.AVAILABLE
    assert tell(record, asked, now=later(99)).outcome is EventOutcome.IGNORED


def test_gone_is_gone() -> None:
    """There is nothing to take out of use."""
    gone = applied(tell(available(), observed(2, ecs_status="INACTIVE")))
    assert _quarantine(gone).outcome is EventOutcome.IGNORED


@pytest.mark.parametrize("make", [rebooting, verifying])
def test_quarantining_the_one_that_tries_frees_its_place_and_opens_the_breaker_again(make: Any) -> None:
    """A person has taken it out of the experiment: it has not come back healed."""
    opened = replace(FLEET, opened_at=later(-9_999), opened_because="many", incident_id="breaker/1")
    fleet = with_repair_begun(opened, IDS[0], ADAPTIVE, NOW)
    assert fleet.breaker is Breaker.HALF_OPEN
    after = _quarantine(make(), fleet=fleet).fleet
    assert after is not None
    assert (after.breaker, after.probe, after.repairing) == (Breaker.OPEN, "", frozenset())
    assert after.opened_at == later(5)


def test_what_was_only_withdrawn_is_given_back_to_those_who_work_on_it() -> None:
    """Nothing ever spoke against it, and a check would take their GPUs."""
    record = applied(_quarantine(claimed()))
    decision = _release(record)
    assert (decision.record.status, decision.record.claims) == (S.AVAILABLE, record.claims)
    assert orders(decision, commands.ActivateInstance) and not orders(decision, commands.RunCheck)
    assert not decision.record.withdrawn


def test_what_was_withdrawn_and_is_free_is_checked_before_it_works() -> None:
    """Who knows what the person did to it."""
    decision = _release(applied(_quarantine(available())))
    assert decision.record.status is S.VERIFYING and orders(decision, commands.RunCheck)


@pytest.mark.parametrize("make", [checking, rebooting, verifying])
def test_what_was_suspect_when_it_was_withdrawn_is_checked_though_a_job_has_a_claim(make: Any) -> None:
    """Only an instance that worked, with nothing said against it, goes straight back."""
    record = replace(applied(_quarantine(make())), claims={"sft-2": Claim(1, 8)})
    assert not record.withdrawn
    assert _release(record).record.status is S.VERIFYING


def test_a_release_ends_a_hold_and_whoever_waits_hears() -> None:
    """The person vouches for it: no repair any more, but a check before it works, and no promise to the jobs."""
    record = applied(tell(_held(), check_request("sft-2", 2), ADAPTIVE, NOW, FULL))
    decision = _release(record)
    after = decision.record
    assert (after.status, after.need, after.held, after.also_waiting) == (S.VERIFYING, None, None, ())
    assert sorted(_ended(decision)) == [("sft-1", False), ("sft-2", False)]
    passed = tell(after, verdict_of(after, CheckOutcome.HEALTHY), now=later(90))
    assert passed.record.status is S.AVAILABLE and _ended(passed) == []
    failed = tell(after, verdict_of(after, CheckOutcome.REBOOT), now=later(90))
    assert failed.record.status is S.QUARANTINED and failed.record.held is None


def test_a_release_during_a_hold_waits_for_those_who_still_work_there() -> None:
    """Their claims stay until the check, which takes every GPU, has shown that nothing of theirs is left."""
    impaired = replace(_held(), claims={"sft-2": Claim(1, 8)})
    record = applied(_release(impaired))
    assert record.claims == impaired.claims
    passed = tell(record, verdict_of(record, CheckOutcome.HEALTHY), now=later(90))
    assert passed.record.claims == {}
    assert [(one.job_id, one.attempt) for one in orders(passed, commands.ConfirmEnd)] == [("sft-2", 1)]


@pytest.mark.parametrize("make", [available, checking, rebooting, verifying])
def test_only_what_is_quarantined_can_be_released(make: Any) -> None:
    """A release that comes late meets something else."""
    assert _release(make()).outcome is EventOutcome.IGNORED


# -- leaving the cluster and coming back -------------------------------------------------------------------------------


def _registered_anew(version: int, registration: str = "ci-2", status: str = "ACTIVE") -> events.InstanceObserved:
    return observed(version, container_instance_id=registration, ecs_status=status)


def _off(seconds: int, state: Ec2InstanceState = Ec2InstanceState.STOPPED) -> events.MachineSeen:
    return events.MachineSeen(at=later(seconds), state=state)


def _what_may_follow(record: Instance, seconds: int) -> Iterator[events.InstanceEvent]:
    """What ECS, EC2, the check and the clock may say of the instance. No operator says anything."""
    newer, at = record.ecs_version + 1, later(seconds)
    for status in ("ACTIVE", "DRAINING", "INACTIVE"):
        yield observed(newer, at=at, container_instance_id=record.container_instance_id, ecs_status=status)
    yield _registered_anew(1, f"{record.container_instance_id}x")
    yield _off(seconds)
    yield events.InstanceBooted(at=at, boot_id=f"boot-{seconds}", booted_at=at)
    if record.check is not None:
        yield verdict_of(record, CheckOutcome.HEALTHY)
    if record.deadline_at is not None:
        yield events.InstanceDeadlineReached(at=record.deadline_at, deadline_at=record.deadline_at)


@pytest.mark.parametrize("make", [available, claimed, checking, rebooting, verifying, _held])
def test_nothing_but_a_release_ends_the_quarantine_of_an_operator(make: Any) -> None:
    """Whatever four events follow: the instance stays QUARANTINED, or it has left and comes back QUARANTINED."""
    reached, seconds = [applied(_quarantine(make()))], 5
    for _ in range(4):
        seconds += 60
        after = []
        for record in reached:
            for event in _what_may_follow(record, seconds):
                decision = tell(record, event, now=max(later(seconds), event.at))
                assert decision.record.status in (S.QUARANTINED, S.GONE), (event, decision.reason)
                after.append(decision.record)
        reached = list({repr(record): record for record in after}.values())
    assert {record.status for record in reached} == {S.QUARANTINED, S.GONE}


def _needs_operator() -> Instance:
    """An instance that gpu-recovery has quarantined: it must be replaced, and replacing is switched off."""
    record = checking()
    return applied(tell(record, verdict_of(record, CheckOutcome.REPLACE)))


def test_a_quarantine_that_nobody_asked_for_outlasts_the_registration_too() -> None:
    """The same GPUs are on the same host. A check that passes is no answer to the reason of the quarantine."""
    record = _needs_operator()
    gone = applied(tell(record, observed(2, ecs_status="INACTIVE"), now=later(60)))
    assert (gone.status, gone.quarantine) == (S.GONE, record.quarantine)
    back = tell(gone, _registered_anew(1), now=later(120))
    assert back.record.status is S.QUARANTINED and back.record.reason.endswith(record.reason)
    assert orders(back, commands.DrainInstance) and not orders(back, commands.RunCheck)
    assert back.record.past == gone.past
    assert applied(_release(back.record, 180)).status is S.VERIFYING


def test_a_stop_and_start_ends_the_quarantine_that_nobody_asked_for() -> None:
    """The instance is on another host, so the reason of the quarantine is over: a check decides."""
    gone = applied(tell(_needs_operator(), _off(60), now=later(60)))
    assert applied(tell(gone, observed(2, at=later(120)), now=later(120))).status is S.VERIFYING


def test_an_operator_makes_the_quarantine_of_gpu_recovery_an_operators_own() -> None:
    """Then a stop and start does not end it. Both reasons are kept, and a second request changes nothing."""
    record = applied(_quarantine(_needs_operator(), 30))
    assert record.reason.startswith("quarantined by ada: a fan is loud; before that: ")
    assert _quarantine(record, 40).outcome is EventOutcome.IGNORED
    gone = applied(tell(record, _off(60), now=later(60)))
    back = applied(tell(gone, observed(2, at=later(120)), now=later(120)))
    assert back.status is S.QUARANTINED and record.reason in back.reason


def test_a_terminated_instance_keeps_no_quarantine() -> None:
    """Its id is never used again."""
    gone = applied(tell(applied(_quarantine(available())), _off(60, Ec2InstanceState.TERMINATED), now=later(60)))
    assert (gone.status, gone.quarantine) == (S.GONE, None)


def _left(record: Instance) -> Instance:
    """Return the record after ECS has ended the registration, which may happen before EC2 shows the instance off."""
    return applied(tell(record, observed(2, ecs_status="INACTIVE"), now=later(60)))


def test_a_stop_after_the_end_of_the_registration_ends_the_quarantine_that_nobody_asked_for() -> None:
    """As a stop before it: the instance is on another host, so a check decides. Nothing is promised in its record."""
    gone = _left(_needs_operator())
    for state in (Ec2InstanceState.RUNNING, Ec2InstanceState.STOPPING, Ec2InstanceState.SHUTTING_DOWN):
        assert tell(gone, _off(90, state), now=later(90)).outcome is EventOutcome.IGNORED
    off = tell(gone, _off(90), now=later(90))
    assert (off.record.status, off.record.quarantine) == (S.GONE, None)
    assert off.record.reason == "EC2 shows it stopped: it is checked if it registers again"
    assert tell(off.record, _off(95), now=later(95)).outcome is EventOutcome.IGNORED
    assert applied(tell(off.record, _registered_anew(1), now=later(120))).status is S.VERIFYING


def test_a_stop_after_the_end_of_the_registration_keeps_the_quarantine_of_an_operator() -> None:
    """The operator may have stopped the instance to work on it."""
    gone = _left(applied(_quarantine(available())))
    assert tell(gone, _off(90), now=later(90)).outcome is EventOutcome.IGNORED
    assert applied(tell(gone, _registered_anew(1), now=later(120))).status is S.QUARANTINED


@pytest.mark.parametrize("make", [_needs_operator, lambda: applied(_quarantine(available()))])
def test_an_instance_that_is_terminated_after_its_registration_keeps_no_quarantine(make: Any) -> None:
    """Its record does not say for good that the quarantine stands."""
    off = tell(_left(make()), _off(90, Ec2InstanceState.TERMINATED), now=later(90))
    assert (off.record.status, off.record.quarantine) == (S.GONE, None)
    assert off.record.reason == "EC2 shows it terminated"


def test_an_answer_of_ec2_from_before_the_end_of_the_registration_counts_if_it_is_newer_than_the_quarantine() -> None:
    """ECS and EC2 report a termination in the same second. EC2 may be asked while the other report is handled."""
    gone = _left(_needs_operator())
    assert gone.quarantine is not None
    assert applied(tell(gone, _off(59), now=later(61))).quarantine is None
    early = replace(gone, quarantine=replace(gone.quarantine, since=later(59)))
    assert tell(early, _off(58), now=later(61)).outcome is EventOutcome.OUTDATED


def test_a_quarantine_may_be_released_after_the_instance_has_left() -> None:
    """Then it is checked when it comes back, as any other."""
    gone = applied(tell(applied(_quarantine(available())), observed(2, ecs_status="INACTIVE"), now=later(60)))
    released = applied(_release(gone, 90))
    assert (released.status, released.quarantine) == (S.GONE, None)
    assert _release(released, 95).outcome is EventOutcome.IGNORED
    assert applied(tell(released, _registered_anew(1), now=later(120))).status is S.VERIFYING


def test_a_release_from_before_the_quarantine_does_not_end_it() -> None:
    """It came late, and is about an earlier quarantine."""
    gone = applied(tell(applied(_quarantine(available(), 50)), observed(2, ecs_status="INACTIVE"), now=later(60)))
    late = tell(gone, events.ReleaseRequested(at=later(40), by="ada"), now=later(90))
    assert late.outcome is EventOutcome.IGNORED


def test_the_quarantine_in_a_record_of_an_earlier_release_stands() -> None:
    """Such a record does not say who asked for it, so nothing but a release ends it."""
    old = replace(_needs_operator(), quarantine=None)
    gone = applied(tell(old, _off(60), now=later(60)))
    back = applied(tell(gone, observed(2, at=later(120)), now=later(120)))
    assert back.status is S.QUARANTINED and old.reason in back.reason


def test_a_new_registration_of_a_quarantined_instance_is_drained() -> None:
    """ECS shows it ACTIVE, as every new registration, and would place tasks of services on it."""
    decision = tell(applied(_quarantine(available())), _registered_anew(1), now=later(60))
    assert decision.record.status is S.QUARANTINED and decision.record.drained
    assert len(orders(decision, commands.DrainInstance)) == 1


@pytest.mark.parametrize("returns", [True, False], ids=["it had gone", "it registers anew"])
def test_observe_only_drains_what_an_operator_has_quarantined_also_when_it_registers_again(returns: bool) -> None:
    """The operator's request is carried out in full, whatever the mode. What gpu-recovery decides is not.

    The third record is of an earlier release, and counts as an operator's.
    """
    old = replace(_needs_operator(), quarantine=None)
    for quarantined, drains in ((applied(_quarantine(available())), 1), (_needs_operator(), 0), (old, 1)):
        gone = applied(tell(quarantined, observed(2, ecs_status="INACTIVE"), now=later(60)))
        record = gone if returns else quarantined
        decision = tell(record, _registered_anew(1), replace(ADAPTIVE, observe_only=True), later(120))
        assert decision.record.status is S.QUARANTINED
        assert len(orders(decision, commands.DrainInstance)) == drains


def test_a_release_from_before_the_quarantine_was_taken_over_does_not_end_it() -> None:
    """Two operators act at the same time: what the first released is not what the second has quarantined."""
    record = applied(_quarantine(_needs_operator(), 30))
    assert _release(record, 20).outcome is EventOutcome.IGNORED
    assert applied(_release(record, 40)).status is S.VERIFYING


def test_an_operator_who_takes_a_quarantine_over_has_the_new_registration_drained() -> None:
    """In observe-only mode it was left ACTIVE, and ECS would place tasks of services on it."""
    observing = replace(ADAPTIVE, observe_only=True)
    gone = applied(tell(_needs_operator(), observed(2, ecs_status="INACTIVE"), now=later(60)))
    back = applied(tell(gone, _registered_anew(1), observing, later(120)))
    request = events.QuarantineRequested(at=later(180), by="ada")
    decision = tell(back, request, observing, later(180))
    assert decision.record.status is S.QUARANTINED and decision.record.drained
    assert len(orders(decision, commands.DrainInstance)) == 1


def test_an_operator_hears_that_the_instance_is_back_in_quarantine() -> None:
    """The thread was closed when the instance left, and said what follows. The next thread asks for a release."""
    left = tell(applied(_quarantine(available())), observed(2, ecs_status="INACTIVE"), now=later(60))
    [told] = orders(left, commands.NotifyOperator)
    assert "it is quarantined again, until an operator releases it" in told.body
    back = tell(left.record, _registered_anew(1), now=later(120))
    [told] = orders(back, commands.NotifyOperator)
    assert "taken out of use by an operator" in told.subject and "quarantined by ada: a fan is loud" in told.body
    assert f"release {IDS[0]}" in told.body
