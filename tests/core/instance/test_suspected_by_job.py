"""What a machine that its job suspects goes through: its check, the one door, its repair, and what its job hears."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from gpu_recovery.core import commands, events
from gpu_recovery.core.fleet import Fleet, Pause
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.instance.record import Claim, InstanceStatus
from gpu_recovery.core.policy import RecoveryPolicy
from gpu_recovery.core.state_machine import Decision, EventOutcome

from tests.core.build import (
    ADAPTIVE,
    FLEET,
    IDS,
    NOW,
    applied,
    claimed,
    later,
    orders,
    tell,
    verdict_of,
)

HEALTHY, SUSPECTED, REBOOT = CheckOutcome.HEALTHY, CheckOutcome.SUSPECTED, CheckOutcome.REBOOT
ON = replace(ADAPTIVE, replace=True)
S = InstanceStatus
BECAUSE = "the gang of sft-1 failed there first 2 times"


def _suspected(
    outcome: CheckOutcome = HEALTHY,
    policy: RecoveryPolicy = ADAPTIVE,
    fleet: Fleet = FLEET,
    again: bool = False,
    suspect: str = IDS[0],
    **fields: Any,
) -> Decision[Any]:
    """What an instance that is suspected makes of the end of its check."""
    asked = events.CheckRequested(
        at=NOW, job_id="sft-1", attempt=1, may_reboot=True, suspect=suspect, because=BECAUSE, again=again
    )
    record = applied(tell(replace(claimed(), **fields), asked, policy))
    return tell(record, verdict_of(record, outcome), policy, NOW, fleet)


def _reported(decision: Decision[Any]) -> commands.ReportCheck:
    (order,) = orders(decision, commands.ReportCheck)
    assert isinstance(order, commands.ReportCheck)
    return order


@pytest.mark.parametrize("outcome", [HEALTHY, CheckOutcome.INCONCLUSIVE])
def test_a_suspect_is_rebooted_though_its_check_found_nothing(outcome: CheckOutcome) -> None:
    """Its job hears that it is suspected, why, and that its repair has begun."""
    decision = _suspected(outcome)
    assert decision.record.status is S.REBOOTING and orders(decision, commands.RebootInstance)
    assert _reported(decision) == commands.ReportCheck("sft-1", 1, SUSPECTED, BECAUSE, True)
    assert BECAUSE in decision.reason and "its check found nothing" in decision.reason


def test_the_others_of_its_gang_are_checked_as_ever() -> None:
    """The request goes to all of them and means one."""
    decision = _suspected(suspect="i-other")
    assert decision.record.status is S.AVAILABLE and _reported(decision).outcome == HEALTHY


def test_a_suspect_that_its_check_blames_is_blamed() -> None:
    """The finding is better than the suspicion."""
    assert _reported(_suspected(REBOOT)).outcome == REBOOT


def test_a_wrong_setting_is_not_rebooted_away() -> None:
    """The check did find something."""
    assert _suspected(CheckOutcome.CONFIGURATION).record.status is S.AVAILABLE


def test_a_suspect_on_which_others_work_is_left_alone() -> None:
    """A suspicion is no reason to stop them, and it is not free for the next attempt in any case."""
    decision = _suspected(claims={"sft-1": Claim(1, 4), "sft-2": Claim(1, 4)})
    assert decision.record.status is S.AVAILABLE
    assert not orders(decision, commands.TellJob) and _reported(decision).outcome == CheckOutcome.INCONCLUSIVE


@pytest.mark.parametrize(
    "fleet",
    [replace(FLEET, pause=Pause("ada", "moving house", NOW)), Fleet(gpu_instances=5, repairing=frozenset({"i-x"}))],
    ids=["pause", "budget"],
)
def test_the_brakes_hold_a_suspects_repair(fleet: Fleet) -> None:
    """It goes through the one door; held, it works for nobody meanwhile."""
    decision = _suspected(fleet=fleet)
    assert decision.record.status is S.QUARANTINED and decision.record.held is not None
    assert not orders(decision, commands.RebootInstance) and _reported(decision).repairing


def test_a_suspicion_that_was_held_until_it_is_old_ends_with_a_check_that_passes() -> None:
    """Nobody waits for a person because of what a check has not confirmed twice."""
    held = _suspected(fleet=replace(FLEET, pause=Pause("ada", "moving house", NOW))).record
    at = later(ADAPTIVE.evidence_stale_s + 60)
    look = events.InstanceLookDue(at=at, look_at=held.look_at)
    fresh = applied(tell(held, look, ADAPTIVE, at))
    assert fresh.status is S.CHECKING
    assert applied(tell(fresh, verdict_of(fresh, HEALTHY), ADAPTIVE, at)).status is S.AVAILABLE


def test_observe_only_touches_no_suspect() -> None:
    """It says what it would have done."""
    decision = _suspected(policy=replace(ADAPTIVE, observe_only=True))
    assert decision.record.status is S.AVAILABLE and not orders(decision, commands.RebootInstance)
    assert "it would be REBOOTING" in decision.reason and not _reported(decision).repairing


@pytest.mark.parametrize(
    ("policy", "again", "status"),
    [(ON, False, S.REBOOTING), (ON, True, S.REPLACING), (ADAPTIVE, True, S.REBOOTING)],
    ids=["first", "again", "again, replacing is off"],
)
def test_a_suspect_is_rebooted_first_and_replaced_if_that_did_not_help(
    policy: RecoveryPolicy, again: bool, status: InstanceStatus
) -> None:
    """Where machines may not be replaced it is rebooted as often as its caps allow."""
    assert _suspected(policy=policy, again=again).record.status is status


def test_a_second_word_of_the_same_check_begins_no_second_repair() -> None:
    """The check id is the fence."""
    asked = events.CheckRequested(
        at=NOW, job_id="sft-1", attempt=1, may_reboot=True, suspect=IDS[0], because=BECAUSE, again=False
    )
    record = applied(tell(claimed(), asked, ADAPTIVE))
    ended = verdict_of(record, HEALTHY)
    after = applied(tell(record, ended, ADAPTIVE))
    assert tell(after, ended, ADAPTIVE).outcome is EventOutcome.OUTDATED
    assert tell(after, asked, ADAPTIVE).outcome is EventOutcome.IGNORED
