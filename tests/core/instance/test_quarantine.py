"""What people say of instances: quarantine and release, in every status, with work on them and repairs held."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from gpu_recovery.core import commands, events
from gpu_recovery.core.fleet import Breaker, Fleet, with_repair_begun
from gpu_recovery.core.health_check import CheckOutcome
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
