"""Replacement: an instance is stopped and started on another host, and proves another boot."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from gpu_recovery.core import commands, events
from gpu_recovery.core.fleet import Breaker, Fleet, with_repair_begun
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.health_signals import DepartureKind, Ec2InstanceState
from gpu_recovery.core.instance.record import Claim, Instance, InstanceStatus, Interruption
from gpu_recovery.core.state_machine import Decision, EventOutcome

from tests.core.build import (
    ADAPTIVE,
    FLEET,
    IDS,
    NOW,
    applied,
    later,
    observed,
    orders,
    overdue,
    rebooting,
    tell,
    verdict_of,
    verifying,
)
from tests.core.instance.escalation_cases import blamed_by_check, repair_ends

HEALTHY, REBOOT, REPLACE = CheckOutcome.HEALTHY, CheckOutcome.REBOOT, CheckOutcome.REPLACE
S = InstanceStatus
ON = replace(ADAPTIVE, replace=True)


def _restarted(**fields: Any) -> Instance:
    """An instance that must be replaced, stopped and started, whose agent is back; it showed boot-1 before."""
    record = applied(blamed_by_check(REPLACE, ON, **fields))
    record = applied(tell(record, observed(2, agent_connected=False), ON))
    record = applied(tell(record, events.MachineSeen(at=NOW, state=Ec2InstanceState.STOPPED), ON))
    return applied(tell(record, observed(3), ON))


def test_a_replacement_stops_starts_and_proves_another_boot() -> None:
    """REPLACING until it is off, started once, VERIFYING with proof when its agent is back, then AVAILABLE."""
    record = applied(blamed_by_check(REPLACE, ON, gpus_most=8))
    assert record.status is S.REPLACING
    assert tell(record, observed(2), ON).record.status is S.REPLACING  # still up: nothing was asked of it yet
    for state in (Ec2InstanceState.RUNNING, Ec2InstanceState.STOPPING, Ec2InstanceState.SHUTTING_DOWN):
        assert tell(record, events.MachineSeen(at=NOW, state=state), ON).outcome is EventOutcome.IGNORED
    off = tell(record, events.MachineSeen(at=NOW, state=Ec2InstanceState.STOPPED), ON)
    assert orders(off, commands.StartInstance) == [commands.StartInstance(record.epoch)]
    again = tell(off.record, events.MachineSeen(at=later(1), state=Ec2InstanceState.STOPPED), ON)
    assert not orders(again, commands.StartInstance)
    back = _restarted()
    assert back.status is S.VERIFYING and back.check is not None and back.check.proof_needed
    assert tell(back, verdict_of(back, HEALTHY, "boot-1"), ON).record.status is S.REPLACING
    healed = tell(back, verdict_of(back, HEALTHY, "boot-2"), ON)
    assert (healed.record.status, healed.record.replaced_at) == (S.AVAILABLE, NOW)
    assert repair_ends(healed) == [("sft-1", True)]


def test_a_machine_that_is_off_has_ended_its_ranks() -> None:
    """Stopped is one of the three confirmed ends."""
    record = applied(blamed_by_check(REPLACE, ON))
    record = replace(record, claims={"other-1": Claim(2, 4)})
    decision = tell(record, events.MachineSeen(at=NOW, state=Ec2InstanceState.STOPPED), ON)
    assert decision.record.claims == {}
    assert [(one.job_id, one.attempt) for one in orders(decision, commands.ConfirmEnd)] == [("other-1", 2)]


def test_a_machine_terminated_in_its_group_is_gone_and_the_job_hears_so() -> None:
    """Its successor registers under a name of its own."""
    record = applied(blamed_by_check(REPLACE, ON))
    busy = with_repair_begun(FLEET, record.instance_id, ON, NOW)
    decision = tell(record, events.MachineSeen(at=NOW, state=Ec2InstanceState.TERMINATED), ON, NOW, busy)
    assert decision.record.status is S.GONE
    assert repair_ends(decision) == [("sft-1", False)]
    assert orders(decision, commands.DeregisterInstance)
    assert decision.fleet is not None and decision.fleet.repairing == frozenset()


OFF = events.MachineSeen(at=later(5), state=Ec2InstanceState.TERMINATED)
DEREGISTERED = observed(9, ecs_status="INACTIVE", agent_connected=False)


@pytest.mark.parametrize(
    ("make", "leaving"),
    [
        (rebooting, [OFF]),
        (rebooting, [DEREGISTERED]),
        (verifying, [OFF]),
        (verifying, [DEREGISTERED, OFF]),
        (lambda: applied(blamed_by_check(REPLACE, ON)), [OFF]),
        (lambda: applied(blamed_by_check(REPLACE, ON)), [DEREGISTERED]),
    ],
)
def test_one_that_goes_while_it_tries_opens_the_breaker_again(make: Any, leaving: list[Any]) -> None:
    """Terminated, it has not come back healed: a broken check would have its way with the next one, and the next."""
    opened = replace(FLEET, opened_at=later(-9_999), opened_because="many", incident_id="breaker/1")
    trying = with_repair_begun(opened, IDS[0], ON, NOW)
    record = make()
    for event in leaving[:-1]:
        record = tell(record, event, ON, later(4), trying).record
    after = tell(record, leaving[-1], ON, later(5), trying).fleet
    assert after is not None
    assert (after.breaker, after.probe, after.repairing) == (Breaker.OPEN, "", frozenset())
    assert after.opened_at == later(5)


def test_a_check_under_a_new_registration_is_an_orphan_and_may_be_about_an_earlier_boot() -> None:
    """Both are kept: its silence is no evidence, and a verdict from before the registration is not the last word."""
    record = verifying()
    assert record.check is not None
    record = replace(record, check=replace(record.check, task_id="task-1"))
    back = tell(record, observed(1, container_instance_id="ci-2", at=later(7)), ON, later(7)).record.check
    assert back is not None and (back.orphaned_at, back.agent_back_at) == (later(7), later(7))


def test_a_check_without_its_registration_keeps_the_instance_under_repair_until_it_has_ended() -> None:
    """Its process may hold the GPUs. What it says is no proof for a registration that is over."""
    trying = with_repair_begun(FLEET, IDS[0], ON, NOW)
    left = tell(verifying(), DEREGISTERED, ON, later(5), trying)
    assert left.record.status is S.VERIFYING and left.fleet is None
    ended = tell(left.record, verdict_of(left.record, CheckOutcome.HEALTHY, "boot-2"), ON, later(9), trying)
    assert ended.record.status is S.GONE and ended.fleet is not None
    assert ended.fleet.repairing == frozenset()


@pytest.mark.parametrize("outcome", [REPLACE, REBOOT])
def test_another_host_is_put_under_a_machine_once_not_again_and_again(outcome: CheckOutcome) -> None:
    """If it is sick on the new host too, a person looks at it: no stopping and starting all night."""
    record = _restarted(reboots=(later(-60), later(-120)))
    decision = tell(record, verdict_of(record, outcome, "boot-2"), ON)
    assert decision.record.status is S.QUARANTINED and "it was moved to another host" in decision.reason
    assert not orders(decision, commands.ReplaceInstance)
    assert repair_ends(decision) == [("sft-1", False)]


def test_on_another_host_the_retirement_of_the_old_one_is_over() -> None:
    """Else it would be left, stopped and started again as soon as it works; EC2's list may lag behind."""
    departure = Interruption(DepartureKind.RETIREMENT, "event-1", later(60), "its host is retired")
    record = _restarted(departure=departure)
    healed = applied(tell(record, verdict_of(record, HEALTHY, "boot-2"), ON))
    assert healed.departure is None and not healed.avoid_reason
    lagging = events.DepartureAnnounced(
        at=later(1),
        kind=DepartureKind.RETIREMENT,
        source="event-1",
        leaves_at=later(60),
        sentence="its host is retired",
    )
    assert tell(healed, lagging, ON, later(1)).outcome is EventOutcome.IGNORED


def test_a_replacement_that_never_comes_back_goes_to_a_person() -> None:
    """The last deadline of the ladder."""
    decision = overdue(applied(blamed_by_check(REPLACE, ON)), ON)
    assert decision.record.status is S.QUARANTINED and decision.record.held is None
    assert repair_ends(decision) == [("sft-1", False)]


def _never_returns(fleet: Fleet) -> Decision[Instance]:
    """The decision when a reboot does not come back in time."""
    return overdue(rebooting(ON), ON, fleet)


def _returns_with_its_fault(fleet: Fleet) -> Decision[Instance]:
    """The decision when the check after a reboot finds the fault again."""
    record = verifying(ON)
    return tell(record, verdict_of(record, REPLACE, "boot-2"), ON, NOW, fleet)


@pytest.mark.parametrize("decide", [_never_returns, _returns_with_its_fault])
def test_a_replacement_after_a_reboot_counts_and_is_held_at_the_limit(decide: Any) -> None:
    """Most replacements follow a reboot. Without the count a bad image would replace a whole fleet."""
    under_repair = with_repair_begun(FLEET, IDS[0], ON, NOW)
    almost = replace(under_repair, replacements=(NOW,) * (ON.replacements_max - 1))
    last = decide(almost)
    assert last.record.status is S.REPLACING and last.fleet is not None
    assert len(last.fleet.replacements) == ON.replacements_max
    assert last.fleet.repairs == almost.repairs  # it stays one repair
    held = decide(replace(almost, replacements=last.fleet.replacements))
    assert held.record.status is S.QUARANTINED and "5 instances were replaced within" in held.reason
    assert not orders(held, commands.ReplaceInstance)


def test_a_replacement_that_waits_for_its_proof_counts_once() -> None:
    """The check may read the old boot: then the same replacement goes on."""
    record, once = _restarted(), with_repair_begun(FLEET, IDS[0], ON, NOW, replacing=True)
    decision = tell(record, verdict_of(record, HEALTHY, "boot-1"), ON, NOW, once)
    assert decision.record.status is S.REPLACING and (decision.fleet or once).replacements == (NOW,)


def test_a_held_replacement_after_a_reboot_is_a_probe_that_failed() -> None:
    """The reboot was made and did not help. Without a new wait the breaker would let the next instance try at once."""
    opened = replace(FLEET, opened_at=later(-9_999), opened_because="many", incident_id="breaker/1")
    overdue_at = rebooting(ON).deadline_at
    assert overdue_at is not None
    replacing = overdue(rebooting(ON), ON, with_repair_begun(opened, IDS[0], ON, NOW))
    assert replacing.record.status is S.REPLACING and replacing.fleet is not None
    held = events.RepairHeld(at=overdue_at, epoch=replacing.record.epoch, sentence="a maintenance tag")
    after = tell(replacing.record, held, ON, overdue_at, replacing.fleet).fleet
    assert after is not None
    assert (after.breaker, after.opened_at, after.probe) == (Breaker.OPEN, overdue_at, "")
    assert (after.repairs, after.replacements, after.repairing) == ((NOW,), (), frozenset())


def test_a_replacement_held_before_its_request_does_not_count() -> None:
    """A maintenance tag that is read again and again would use up the replacements of the fleet."""
    record = applied(blamed_by_check(REPLACE, ON))
    other = replace(FLEET, replacements=(NOW,))
    held = events.RepairHeld(at=NOW, epoch=record.epoch, sentence="a maintenance tag")
    undone = tell(record, held, ON, NOW, with_repair_begun(other, IDS[0], ON, NOW, replacing=True))
    assert undone.record.status is S.QUARANTINED and undone.fleet == other
    reboot = rebooting(ON)
    held_reboot = replace(held, epoch=reboot.epoch)
    assert tell(reboot, held_reboot, ON, NOW, with_repair_begun(other, IDS[0], ON, NOW)).fleet == other
