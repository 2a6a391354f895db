"""Escalation: the repair level that evidence leads to, who hears of the end, and draining."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from gpu_recovery.core import commands, events
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.health_signals import DepartureKind, Ec2InstanceState
from gpu_recovery.core.instance.record import InstanceStatus, Interruption
from gpu_recovery.core.policy import RecoveryPolicy

from tests.core.build import (
    ADAPTIVE,
    FLEET,
    IDS,
    NOW,
    STUCK,
    applied,
    check_request,
    checking,
    claimed,
    later,
    observed,
    orders,
    overdue,
    rebooting,
    tell,
    verdict_of,
    verifying,
)
from tests.core.instance.escalation_cases import FULL, PAUSED, at_its_look, blamed_by_check, held_instance, repair_ends

HEALTHY, REBOOT, REPLACE = CheckOutcome.HEALTHY, CheckOutcome.REBOOT, CheckOutcome.REPLACE
S = InstanceStatus
ON = replace(ADAPTIVE, replace=True)


# -- the rungs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("policy", "last"), [(ADAPTIVE, S.QUARANTINED), (ON, S.REPLACING)], ids=["off", "on"])
@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"reboots": (later(-60), later(-120))}, "it was rebooted or replaced 2 time(s) within 86400 s"),
        ({"healed_at": later(-3_599)}, "its last repair held for less than 3600 s"),
        (
            {"departure": Interruption(DepartureKind.RETIREMENT, "event-1", later(10**6), "it is retired")},
            "its host is to be retired",
        ),
    ],
    ids=["cap", "relapse", "retirement"],
)
def test_what_a_reboot_does_not_cure_goes_one_rung_up(
    fields: dict[str, Any], says: str, policy: RecoveryPolicy, last: InstanceStatus
) -> None:
    """By its cap, by a relapse, by a retirement; and where replacing is switched off, to a person."""
    decision = blamed_by_check(REBOOT, policy, **fields)
    assert decision.record.status is last and says in decision.reason
    assert not orders(decision, commands.RebootInstance)
    assert ("switched off" in decision.reason) is (last is S.QUARANTINED)


@pytest.mark.parametrize("fields", [{"reboots": (later(-60), later(-86_400))}, {"healed_at": later(-3_600)}])
def test_what_is_long_ago_pushes_nothing_up(fields: dict[str, Any]) -> None:
    """The window and the relapse end to the second."""
    assert blamed_by_check(REBOOT, ON, **fields).record.status is S.REBOOTING


def test_a_reboot_that_is_to_end_a_rank_is_no_cure_and_never_pushed_up() -> None:
    """However often the machine was rebooted: stopping it would end the rank no better."""
    worn = claimed(reboots=(later(-60), later(-120)), healed_at=later(-60))
    assert tell(worn, STUCK, ON).record.status is S.REBOOTING


def test_a_reboot_that_never_comes_back_is_replaced_where_that_is_allowed() -> None:
    """A stop ends whatever still hangs there; else a person must, and the job hears so."""
    on = overdue(rebooting(ON), ON)
    assert on.record.status is S.REPLACING and orders(on, commands.ReplaceInstance)
    assert repair_ends(on) == []
    off = overdue(rebooting())
    assert off.record.status is S.QUARANTINED and repair_ends(off) == [("sft-1", False)]
    held = overdue(rebooting(ON), ON, replace(FLEET, pause=PAUSED.pause, repairing=frozenset(IDS[:1])))
    assert held.record.status is S.QUARANTINED and held.record.held is not None and repair_ends(held) == []


def test_a_reboot_that_did_not_cure_is_repeated_within_the_cap_and_may_then_help() -> None:
    """The second boot is proved against the first, and only then it works again."""
    record = verifying()
    again = applied(tell(record, verdict_of(record, REBOOT, "boot-2")))
    assert again.status is S.REBOOTING and again.reboot is not None and again.reboot.boot_id == "boot-2"
    back = applied(tell(applied(tell(again, observed(4, agent_connected=False))), observed(5)))
    assert tell(back, verdict_of(back, HEALTHY, "boot-2")).record.status is S.REBOOTING
    assert tell(back, verdict_of(back, HEALTHY, "boot-3")).record.status is S.AVAILABLE
    beyond = tell(back, verdict_of(back, REBOOT, "boot-3"))
    assert beyond.record.status is S.QUARANTINED and "2 time(s)" in beyond.reason


def test_where_machines_may_be_replaced_the_first_reboot_that_did_not_cure_is_the_last() -> None:
    """A second seldom helps, and a job without a spare waits for it."""
    record = verifying(ON)
    after = tell(record, verdict_of(record, REBOOT, "boot-2"), ON).record
    assert after.status is S.REPLACING and "after its repair" in after.reason


# -- who waits ---------------------------------------------------------------------------------------------------------


def test_every_job_that_asked_during_a_repair_hears_its_end_once() -> None:
    """Three jobs shared the instance; the repair is for the first, the others asked while it was held."""
    record = held_instance()
    for job_id in ("sft-2", "sft-3"):
        record = applied(tell(record, check_request(job_id, 2), ADAPTIVE, NOW, FULL))
    everyone = [("sft-1", False), ("sft-2", False), ("sft-3", False)]
    assert sorted(repair_ends(overdue(record, fleet=FULL))) == everyone
    begins = at_its_look(record).record
    assert sorted(repair_ends(overdue(begins))) == everyone
    fresh = at_its_look(replace(record, look_at=later(ADAPTIVE.evidence_stale_s))).record
    healed = tell(fresh, verdict_of(fresh, HEALTHY))
    assert sorted(repair_ends(healed)) == [(name, True) for name, _ in everyone]
    assert healed.record.also_waiting == ()


def test_a_job_past_its_repairs_has_nothing_more_repaired() -> None:
    """Its check blames, which counts for the breaker, and a person has the machine."""
    decision = tell((record := checking(may_reboot=False)), verdict_of(record, REBOOT))
    assert decision.record.status is S.QUARANTINED and "nothing more is repaired for sft-1" in decision.reason
    assert decision.fleet is not None and list(decision.fleet.blamed) == [IDS[0]]


# -- draining ----------------------------------------------------------------------------------------------------------


def test_what_a_person_has_drained_is_the_persons_to_activate() -> None:
    """Neither drained again by us nor activated behind their back."""
    decision = blamed_by_check(REBOOT, ADAPTIVE, ecs_status="DRAINING")
    assert not orders(decision, commands.DrainInstance) and not decision.record.drained
    away = applied(tell(decision.record, observed(2, agent_connected=False, ecs_status="DRAINING")))
    back = tell(away, observed(3, ecs_status="DRAINING"))
    assert back.record.status is S.VERIFYING and not orders(back, commands.ActivateInstance)


def test_our_own_draining_that_ecs_still_shows_does_not_pass_for_a_persons() -> None:
    """Activated for its check and blamed again before ECS said ACTIVE: it must be drained once more."""
    away = applied(tell(rebooting(), observed(2, agent_connected=False, ecs_status="DRAINING")))
    back = applied(tell(away, observed(3, ecs_status="DRAINING")))
    again = tell(back, verdict_of(back, REBOOT, "boot-2"))
    assert again.record.status is S.REBOOTING and orders(again, commands.DrainInstance)


def test_a_quarantined_machine_that_a_person_stops_and_starts_comes_back() -> None:
    """What the message asks for. ECS has kept the DRAINING that we gave it: we drained it, so we activate it."""
    record = applied(blamed_by_check(REPLACE))
    record = applied(tell(record, observed(2, ecs_status="DRAINING")))
    gone = applied(tell(record, events.MachineSeen(at=later(9), state=Ec2InstanceState.STOPPED), now=later(9)))
    assert gone.status is S.GONE
    off = applied(tell(gone, observed(3, ecs_status="DRAINING", agent_connected=False)))
    assert off.status is S.GONE
    back = tell(off, observed(4, ecs_status="DRAINING"))
    assert back.record.status is S.VERIFYING and orders(back, commands.ActivateInstance)
