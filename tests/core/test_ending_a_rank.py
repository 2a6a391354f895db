"""A repair that is to end a rank, and who waits for it: its job, unless that is over, and whose check it cuts short."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gpu_recovery.core import commands, events
from gpu_recovery.core.check import CheckOutcome
from gpu_recovery.core.instance.record import Claim, Instance, InstanceStatus, Need, Rung
from gpu_recovery.core.machine import Decision

from tests.core.build import ADAPTIVE, NOW, applied, claimed, observed, orders, tell, verdict_of

HEALTHY = CheckOutcome.HEALTHY
AVAILABLE, QUARANTINED = InstanceStatus.AVAILABLE, InstanceStatus.QUARANTINED
REPAIR = events.RepairRequested(at=NOW, job_id="sft-1", attempt=1, sentence="a rank of sft-1--a01 cannot be stopped")


def _overdue(record: Instance) -> Decision[Instance]:
    """What the instance decides when its deadline passes."""
    assert record.deadline_at is not None
    event = events.InstanceDeadlineReached(at=record.deadline_at, deadline_at=record.deadline_at)
    return tell(record, event, now=record.deadline_at)


def test_a_repair_that_its_job_waits_for_keeps_the_instance_for_it() -> None:
    """It goes on there; a job that is over when its wish is heard has the rank ended, and no more."""
    for awaited, kept_for, told in ((True, "sft-1", 1), (False, "", 0)):
        begun = tell(replace(claimed(), reserved_for="sft-1"), replace(REPAIR, awaited=awaited))
        assert (begun.record.status, begun.record.reserved_for) == (InstanceStatus.REBOOTING, kept_for)
        failed = _overdue(applied(begun))
        assert len(orders(failed, commands.TellJob)) == told
    kept = tell(replace(claimed(), reserved_for="other-1"), replace(REPAIR, awaited=False))
    assert kept.record.reserved_for == "other-1"


@pytest.mark.parametrize(("awaited", "told"), [(True, {"sft-1", "other-1"}), (False, {"other-1"})])
def test_whose_check_a_repair_cuts_short_hears_the_end_of_the_repair(awaited: bool, told: set[str]) -> None:
    """It was told that one is under way, and waits for that."""
    shared = replace(claimed(boot_id="boot-1"), claims={**claimed().claims, "other-1": Claim(1, 4)})
    asked = events.CheckRequested(at=NOW, job_id="other-1", attempt=1, may_reboot=True)
    begun = tell(applied(tell(shared, asked)), replace(REPAIR, awaited=awaited))
    assert [(one.job_id, one.repairing) for one in orders(begun, commands.ReportCheck)] == [("other-1", True)]
    record = applied(begun)
    back = applied(tell(record, observed(2, container_instance_id="ci-2")))
    for ended in (_overdue(record), tell(back, verdict_of(back, HEALTHY, "boot-2"))):
        heard = [one.job_id for one in orders(ended, commands.TellJob) if isinstance(one.event, events.RepairEnded)]
        assert sorted(heard) == sorted(told)


def test_whose_check_is_cut_short_for_a_repair_that_no_program_makes_hears_that_at_once() -> None:
    """It goes to a person: nobody else would ever tell it."""
    shared = replace(claimed(), claims={**claimed().claims, "other-1": Claim(1, 4)})
    asked = events.CheckRequested(at=NOW, job_id="other-1", attempt=1, may_reboot=True)
    replaced = replace(applied(tell(shared, asked)), need=Need(Rung.REPLACE, "ECC", NOW))
    decision = tell(replaced, REPAIR, policy=replace(ADAPTIVE, replace=False))
    assert decision.record.status is QUARANTINED
    heard = [one.job_id for one in orders(decision, commands.TellJob) if isinstance(one.event, events.RepairEnded)]
    assert sorted(heard) == ["other-1", "sft-1"]


def test_a_rank_of_a_job_that_is_over_ends_with_a_proved_reboot_too() -> None:
    """Its claim goes, so that the GPUs can be given to others."""
    record = applied(tell(claimed(boot_id="boot-1"), replace(REPAIR, awaited=False)))
    record = applied(tell(record, observed(2, container_instance_id="ci-2")))
    decision = tell(record, verdict_of(record, HEALTHY, "boot-2"))
    assert (decision.record.status, decision.record.claims) == (AVAILABLE, {})
    assert [(one.job_id, one.attempt) for one in orders(decision, commands.ConfirmEnd)] == [("sft-1", 1)]
