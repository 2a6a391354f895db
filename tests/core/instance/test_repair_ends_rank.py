"""A repair that is to end a rank, and who waits for it: its job, unless that is over, and whose check it cuts short."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gpu_recovery.core import commands, events
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.instance.record import Claim, InstanceStatus, RepairLevel, RepairNeed
from gpu_recovery.core.state_machine import EventOutcome

from tests.core.build import (
    ADAPTIVE,
    NOW,
    STUCK,
    applied,
    available,
    claimed,
    later,
    observed,
    orders,
    overdue,
    tell,
    verdict_of,
)

HEALTHY, REBOOT, REPLACE = CheckOutcome.HEALTHY, CheckOutcome.REBOOT, CheckOutcome.REPLACE
AVAILABLE, QUARANTINED = InstanceStatus.AVAILABLE, InstanceStatus.QUARANTINED


def test_a_rank_that_cannot_be_stopped_ends_with_a_proved_reboot() -> None:
    """Only then its claim goes and its job hears of the end."""
    record = applied(tell(claimed(boot_id="boot-1"), STUCK))
    assert record.status is InstanceStatus.REBOOTING
    assert record.claims
    record = applied(tell(record, observed(2, agent_connected=False)))
    record = applied(tell(record, observed(3)))
    decision = tell(record, verdict_of(record, HEALTHY, "boot-2"))
    assert (decision.record.status, decision.record.claims) == (AVAILABLE, {})
    assert [(one.job_id, one.attempt) for one in orders(decision, commands.ConfirmEnd)] == [("sft-1", 1)]


def test_a_rank_whose_reboot_fails_is_told_as_never_ended() -> None:
    """Its job need not wait for its own deadline; the claim stays."""
    record = applied(tell(claimed(), STUCK))
    decision = overdue(record)
    assert decision.record.claims == record.claims
    assert [one.event.healed for one in orders(decision, commands.TellJob)] == [False]
    assert not orders(decision, commands.ConfirmEnd)


def test_a_reboot_that_would_cost_another_jobs_work_is_a_persons_to_decide() -> None:
    """Two jobs share the instance; only one of them has a rank that cannot be stopped."""
    shared = claimed()
    shared = replace(shared, claims={**shared.claims, "other-1": Claim(1, 4)})
    decision = tell(shared, STUCK)
    assert decision.record.status is QUARANTINED
    assert decision.record.claims == shared.claims
    assert not orders(decision, commands.RebootInstance)


@pytest.mark.parametrize("outcome", [REBOOT, REPLACE])
def test_a_proved_reboot_ends_the_rank_even_if_the_check_then_fails(outcome: CheckOutcome) -> None:
    """The machine is sick, but nothing of before runs on it any more."""
    record = applied(tell(claimed(boot_id="boot-1"), STUCK))
    record = applied(tell(record, observed(2, container_instance_id="ci-2")))
    decision = tell(record, verdict_of(record, outcome, "boot-2"))
    assert decision.record.claims == {}
    assert orders(decision, commands.ConfirmEnd)


def test_a_reboot_is_not_asked_for_an_attempt_that_holds_nothing_here() -> None:
    """The rank has ended since, or another attempt has the instance."""
    for record in (available(), claimed(attempt=2), claimed("other-1")):
        assert tell(record, STUCK).outcome is EventOutcome.IGNORED


def test_a_reboot_that_has_been_made_is_not_made_again_for_the_same_wish() -> None:
    """The order may be carried out twice; what was asked before the last reboot is done."""
    assert tell(claimed(reboots=(later(1),)), STUCK).outcome is EventOutcome.IGNORED
    assert tell(claimed(reboots=(later(-1),)), STUCK).outcome is EventOutcome.APPLIED


def test_a_repair_that_its_job_waits_for_keeps_the_instance_for_it() -> None:
    """It goes on there; a job that is over when its wish is heard has the rank ended, and no more."""
    for awaited, kept_for, told in ((True, "sft-1", 1), (False, "", 0)):
        begun = tell(replace(claimed(), reserved_for="sft-1"), replace(STUCK, awaited=awaited))
        assert (begun.record.status, begun.record.reserved_for) == (InstanceStatus.REBOOTING, kept_for)
        failed = overdue(applied(begun))
        assert len(orders(failed, commands.TellJob)) == told
    kept = tell(replace(claimed(), reserved_for="other-1"), replace(STUCK, awaited=False))
    assert kept.record.reserved_for == "other-1"


@pytest.mark.parametrize(("awaited", "told"), [(True, {"sft-1", "other-1"}), (False, {"other-1"})])
def test_whose_check_a_repair_cuts_short_hears_the_end_of_the_repair(awaited: bool, told: set[str]) -> None:
    """It was told that one is under way, and waits for that."""
    shared = replace(claimed(boot_id="boot-1"), claims={**claimed().claims, "other-1": Claim(1, 4)})
    asked = events.CheckRequested(at=NOW, job_id="other-1", attempt=1, may_reboot=True)
    begun = tell(applied(tell(shared, asked)), replace(STUCK, awaited=awaited))
    assert [(one.job_id, one.repairing) for one in orders(begun, commands.ReportCheck)] == [("other-1", True)]
    record = applied(begun)
    back = applied(tell(record, observed(2, container_instance_id="ci-2")))
    for ended in (overdue(record), tell(back, verdict_of(back, HEALTHY, "boot-2"))):
        heard = [one.job_id for one in orders(ended, commands.TellJob) if isinstance(one.event, events.RepairEnded)]
        assert sorted(heard) == sorted(told)


def test_whose_check_is_cut_short_for_a_repair_that_no_program_makes_hears_that_at_once() -> None:
    """It goes to a person: nobody else would ever tell it."""
    shared = replace(claimed(), claims={**claimed().claims, "other-1": Claim(1, 4)})
    asked = events.CheckRequested(at=NOW, job_id="other-1", attempt=1, may_reboot=True)
    replaced = replace(applied(tell(shared, asked)), need=RepairNeed(RepairLevel.REPLACE, "ECC", NOW))
    decision = tell(replaced, STUCK, policy=replace(ADAPTIVE, replace=False))
    assert decision.record.status is QUARANTINED
    heard = [one.job_id for one in orders(decision, commands.TellJob) if isinstance(one.event, events.RepairEnded)]
    assert sorted(heard) == ["other-1", "sft-1"]


def test_a_rank_of_a_job_that_is_over_ends_with_a_proved_reboot_too() -> None:
    """Its claim goes, so that the GPUs can be given to others."""
    record = applied(tell(claimed(boot_id="boot-1"), replace(STUCK, awaited=False)))
    record = applied(tell(record, observed(2, container_instance_id="ci-2")))
    decision = tell(record, verdict_of(record, HEALTHY, "boot-2"))
    assert (decision.record.status, decision.record.claims) == (AVAILABLE, {})
    assert [(one.job_id, one.attempt) for one in orders(decision, commands.ConfirmEnd)] == [("sft-1", 1)]


def test_one_reboot_ends_the_ranks_of_two_jobs_that_cannot_be_stopped() -> None:
    """Neither job can leave the instance for the other. The second request begins the held reboot."""
    shared = claimed(boot_id="boot-1")
    shared = replace(shared, claims={"sft-1": Claim(1, 4), "other-1": Claim(1, 4)})
    held = applied(tell(shared, STUCK))
    assert held.status is QUARANTINED and held.held is not None
    asked = replace(STUCK, job_id="other-1", at=later(60))
    decision = tell(held, asked, now=later(60))
    assert decision.record.status is InstanceStatus.REBOOTING and orders(decision, commands.RebootInstance)
    record = applied(tell(decision.record, observed(2, agent_connected=False)))
    record = applied(tell(record, observed(3)))
    decision = tell(record, verdict_of(record, HEALTHY, "boot-2"))
    assert (decision.record.status, decision.record.claims) == (AVAILABLE, {})
    assert {one.job_id for one in orders(decision, commands.ConfirmEnd)} == {"sft-1", "other-1"}
    assert {one.job_id for one in orders(decision, commands.TellJob)} == {"sft-1", "other-1"}


def test_a_second_job_that_can_still_leave_is_not_ended_by_the_reboot() -> None:
    """It has asked for nothing, so the reboot waits for it."""
    shared = claimed()
    shared = replace(shared, claims={"sft-1": Claim(1, 4), "other-1": Claim(2, 4)})
    held = applied(tell(shared, STUCK))
    outdated = replace(STUCK, job_id="other-1", attempt=1, at=later(60))
    assert tell(held, outdated, now=later(60)).outcome is EventOutcome.IGNORED
