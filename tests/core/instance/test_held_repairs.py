"""Repairs that may not begin yet: why they are held back, when they begin, and when an operator takes over."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from gpu_recovery.core import commands, events
from gpu_recovery.core.fleet import Breaker, Fleet, with_blame, with_repair_begun
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.health_signals import HealthKind, HealthStatus
from gpu_recovery.core.instance.record import Claim, Instance, InstanceStatus, RankOnInstance, RepairLevel
from gpu_recovery.core.state_machine import Decision, EventOutcome

from tests.core.build import (
    ADAPTIVE,
    FLEET,
    IDS,
    NOW,
    STUCK,
    applied,
    available,
    checking,
    claimed,
    later,
    orders,
    overdue,
    rebooting,
    tell,
    verdict_of,
)
from tests.core.instance.escalation_cases import FULL, PAUSED, at_its_look, blamed_by_check, held_instance, repair_ends

HEALTHY, REBOOT, REPLACE = CheckOutcome.HEALTHY, CheckOutcome.REBOOT, CheckOutcome.REPLACE
S = InstanceStatus
ON = replace(ADAPTIVE, replace=True)


def _asked_to_leave(decision: Decision[Any]) -> list[tuple[str, int]]:
    told = orders(decision, commands.TellJob)
    return [(one.job_id, one.event.attempt) for one in told if isinstance(one.event, events.InstanceNeedsRepair)]


# -- what is held back -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fleet", "says"),
    [
        (FULL, "1 of at most 1 instance(s) are under repair: i-other"),
        (PAUSED, "recovery is paused by ada: moving house"),
        (
            Fleet(gpu_instances=9, opened_at=NOW, opened_because="4 of 9 looked bad"),
            "the circuit breaker is open: 4 of 9",
        ),
    ],
    ids=["budget", "pause", "breaker"],
)
def test_the_reason_of_what_is_held_names_what_stands_in_the_way(fleet: Fleet, says: str) -> None:
    """The job is told that it is being repaired, for it will be."""
    decision = blamed_by_check(REBOOT, ADAPTIVE, fleet)
    assert decision.record.status is S.QUARANTINED and says in decision.reason
    assert decision.record.need is not None and decision.record.need.rung is RepairLevel.REBOOT
    assert [one.repairing for one in orders(decision, commands.ReportCheck)] == [True]
    assert orders(decision, commands.DrainInstance) and not orders(decision, commands.RebootInstance)


def test_one_replacement_too_many_is_held_while_a_reboot_may_begin() -> None:
    """New instances may be faulty too. A reboot makes no new instance."""
    fleet = Fleet(gpu_instances=100, replacements=(NOW,) * (ON.replacements_max - 1))
    begins = blamed_by_check(REPLACE, ON, fleet)
    assert begins.record.status is S.REPLACING and begins.fleet is not None
    assert len(begins.fleet.replacements) == ON.replacements_max
    full = replace(fleet, replacements=begins.fleet.replacements)
    held = blamed_by_check(REPLACE, ON, full)
    assert held.record.status is S.QUARANTINED and "5 instances were replaced within" in held.reason
    assert orders(held, commands.DrainInstance) and not orders(held, commands.ReplaceInstance)
    assert blamed_by_check(REBOOT, ON, full).record.status is S.REBOOTING


def test_the_instance_whose_blame_opens_the_breaker_is_held_by_it() -> None:
    """The decision that counts it must not be the last one that slips through."""
    fleet = Fleet(gpu_instances=4)
    for name in ("i-a", "i-b"):
        fleet = with_blame(fleet, name, 8, ADAPTIVE, NOW)
    decision = blamed_by_check(REBOOT, ADAPTIVE, fleet)
    assert decision.record.status is S.QUARANTINED and "the circuit breaker is open: 3 of 4" in decision.reason
    assert decision.fleet is not None and decision.fleet.breaker is Breaker.OPEN


def test_what_is_held_asks_again_at_each_look_and_begins_when_it_may() -> None:
    """Nothing is ordered twice meanwhile, and its time does not begin anew."""
    record = held_instance()
    for n in range(1, 6):
        assert record.look_at == later(ADAPTIVE.hold_retry_interval_s * n)
        decision = at_its_look(record, fleet=FULL)
        assert decision.commands == () and decision.record.held.since == NOW
        record = decision.record
    begins = at_its_look(record)
    assert begins.record.status is S.REBOOTING and orders(begins, commands.RebootInstance)
    assert begins.fleet is not None and begins.fleet.repairing == {IDS[0]}


def test_everybody_at_work_is_asked_to_leave_once_with_their_attempt() -> None:
    """One who comes later is asked at the next look; when all are gone the repair begins."""
    shared = {"a-1": Claim(3, 2), "b-1": Claim(1, 2)}
    impaired = events.HealthReported(
        at=NOW, kind=HealthKind.INSTANCE_STATUS, status=HealthStatus.IMPAIRED, since=NOW, sentence="unreachable"
    )
    decision = tell(available(claims=shared), impaired)
    assert decision.record.status is S.QUARANTINED and "a-1, b-1 must leave it first" in decision.reason
    assert _asked_to_leave(decision) == [("a-1", 3), ("b-1", 1)]
    record = replace(decision.record, claims={**shared, "c-1": Claim(2, 2)})
    again = at_its_look(record)
    assert _asked_to_leave(again) == [("c-1", 2)]
    assert _asked_to_leave(at_its_look(again.record)) == []
    assert at_its_look(replace(again.record, claims={})).record.status is S.REBOOTING


def test_old_evidence_is_looked_at_afresh_by_a_check_before_anything_is_repaired() -> None:
    """What was seen half an hour ago may be over; the job that waits hears what the check says."""
    record = replace(held_instance(), look_at=later(ADAPTIVE.evidence_stale_s))
    still = at_its_look(record, fleet=FULL)
    assert still.record.status is S.QUARANTINED
    fresh = at_its_look(record)
    assert fresh.record.status is S.CHECKING and orders(fresh, commands.RunCheck)
    assert orders(fresh, commands.ActivateInstance) and not orders(fresh, commands.RebootInstance)
    well = tell(fresh.record, verdict_of(fresh.record, HEALTHY))
    assert (well.record.status, repair_ends(well)) == (S.AVAILABLE, [("sft-1", True)])
    assert (well.record.held, well.record.need) == (None, None)
    unclear = tell(fresh.record, verdict_of(fresh.record, CheckOutcome.INCONCLUSIVE))
    assert repair_ends(unclear) == [("sft-1", False)]
    sick = tell(fresh.record, verdict_of(fresh.record, REBOOT))
    assert (sick.record.status, repair_ends(sick)) == (S.REBOOTING, [])
    assert repair_ends(overdue(sick.record)) == [("sft-1", False)]


def test_a_fresh_look_does_not_begin_the_wait_anew() -> None:
    """Held, checked, and held again by the brakes: a person decides in the end all the same."""
    record = replace(held_instance(), look_at=later(ADAPTIVE.evidence_stale_s))
    fresh = at_its_look(record).record
    again = tell(fresh, verdict_of(fresh, REBOOT), now=later(4_000), fleet=FULL).record
    assert again.status is S.QUARANTINED and again.held.since == NOW
    assert again.deadline_at == later(ADAPTIVE.repair_hold_timeout_s)


def test_evidence_that_no_check_could_confirm_is_not_looked_at_afresh() -> None:
    """Without its agent no check can run, and a rank that cannot be stopped is no matter of health."""
    at = later(ADAPTIVE.evidence_stale_s)
    away = replace(held_instance(), agent_connected=False, look_at=at)
    assert at_its_look(away).record.status is S.REBOOTING
    stuck = replace(applied(tell(claimed(), STUCK, ADAPTIVE, NOW, FULL)), look_at=at)
    assert at_its_look(stuck).record.status is S.REBOOTING


def test_what_is_held_too_long_goes_to_a_person_and_the_job_hears_so() -> None:
    """Six hours: nothing waits for ever."""
    record = held_instance()
    assert record.deadline_at == later(ADAPTIVE.repair_hold_timeout_s)
    decision = overdue(record, fleet=FULL)
    assert (decision.record.status, decision.record.held, decision.record.need) == (S.QUARANTINED, None, None)
    assert "was blocked for 21600 s: 1 of at most 1" in decision.reason
    assert repair_ends(decision) == [("sft-1", False)]
    assert decision.record.look_at is None


def test_a_repair_that_waits_for_its_turn_is_held_for_as_long_as_other_repairs_begin() -> None:
    """128 machines at 20 repairs an hour take longer than the hold timeout: none of them is forgotten."""
    record, timeout_s = held_instance(), ADAPTIVE.repair_hold_timeout_s
    begun_at = later(timeout_s - 60)
    turning = replace(FULL, repairs=(later(60), begun_at))
    at = replace(record, look_at=later(timeout_s - 30))
    for kept in (
        at,
        replace(at, need=replace(at.need, seen_at=begun_at)),
    ):  # with old evidence, and with fresh evidence
        still = at_its_look(kept, fleet=turning).record
        assert still.held is not None and still.held.since == NOW
        assert still.deadline_at == begun_at + timedelta(seconds=timeout_s)
    ended = overdue(still, fleet=turning)
    assert ended.record.held is None and repair_ends(ended) == [("sft-1", False)]


@pytest.mark.parametrize(
    "fleet",
    [PAUSED, Fleet(gpu_instances=9, opened_at=NOW, opened_because="4 of 9 looked bad", probe="i-other")],
    ids=["pause", "breaker"],
)
def test_what_stops_all_repairs_keeps_its_timeout(fleet: Fleet) -> None:
    """A pause or an open breaker may last: then a person decides, from the last turn that came before it."""
    timeout = timedelta(seconds=ADAPTIVE.repair_hold_timeout_s)
    stopped = replace(fleet, repairs=(later(600),))
    record = replace(held_instance(), look_at=later(900))
    assert at_its_look(record, fleet=stopped).record.deadline_at == NOW + timeout
    waited = at_its_look(record, fleet=replace(FULL, repairs=(later(600),))).record
    assert at_its_look(waited, fleet=stopped).record.deadline_at == later(600) + timeout


@pytest.mark.parametrize(("instances", "seconds"), [(9, 30), (3_000, 300), (50_000, 600)])
def test_held_repairs_of_a_large_fleet_are_tried_less_often(instances: int, seconds: int) -> None:
    """Thousands may be held at once: two tries a minute of each would fill the reconciler's minute."""
    fleet = replace(PAUSED, gpu_instances=instances)
    record = replace(held_instance(), look_at=later(60))
    assert at_its_look(record, fleet=fleet).record.look_at == later(60 + seconds)


def _second_look(record: Instance, now: datetime = NOW) -> events.RepairHeld:
    return events.RepairHeld(at=now, epoch=record.epoch, sentence="its maintenance tag prohibits repairs")


# -- the second look ---------------------------------------------------------------------------------------------------


def test_what_the_second_look_holds_back_is_as_if_it_had_never_begun() -> None:
    """No reboot is counted, of the instance or of the fleet, and a breaker's turn is not used up."""
    record = rebooting()
    brakes = with_repair_begun(FLEET, record.instance_id, ADAPTIVE, NOW)
    decision = tell(record, _second_look(record), fleet=brakes)
    assert decision.record.status is S.QUARANTINED and "maintenance tag" in decision.reason
    assert (decision.record.reboots, decision.record.reboot) == ((), None)
    assert decision.fleet == FLEET
    assert repair_ends(decision) == []
    opened = replace(FLEET, opened_at=later(-9_999), opened_because="many")
    tried = tell(record, _second_look(record), fleet=with_repair_begun(opened, record.instance_id, ADAPTIVE, NOW))
    assert tried.fleet == opened


def test_what_the_second_look_holds_back_is_not_tried_again_on_the_same_evidence() -> None:
    """Every half minute anew it would fill the history, the fleet's hour and the operators' mailboxes for nothing."""
    record, waited = rebooting(), NOW
    first = applied(tell(record, _second_look(record)))
    assert first.look_at == later(ADAPTIVE.evidence_stale_s)
    fresh = at_its_look(first).record
    assert fresh.status is S.CHECKING and first.look_at is not None
    again = applied(tell(fresh, verdict_of(fresh, REBOOT), now=first.look_at))
    held = applied(tell(again, _second_look(again, first.look_at), now=first.look_at))
    assert held.held is not None and held.held.since == waited
    assert held.deadline_at == later(ADAPTIVE.repair_hold_timeout_s)


def test_a_refusal_at_the_second_look_goes_to_a_person() -> None:
    """A machine that nobody handed over stays so: nothing is asked again."""
    for record in (rebooting(), applied(blamed_by_check(REPLACE, ON))):
        refused = events.RepairRefused(at=NOW, epoch=record.epoch, sentence="it is not handed over")
        decision = tell(record, refused, ON)
        assert (decision.record.status, decision.record.held) == (S.QUARANTINED, None)
        assert repair_ends(decision) == [("sft-1", False)]


def test_a_reboot_that_nobody_heard_minds_the_brakes_before_it_is_asked_for_again() -> None:
    """Somebody may have paused everything since; it was never made, so it is held like any other."""
    unsure = applied(tell(rebooting(), events.RebootUncertain(at=NOW, epoch=1)))
    decision = tell(unsure, verdict_of(unsure, HEALTHY, "boot-1"), fleet=PAUSED)
    assert decision.record.status is S.QUARANTINED and "paused by ada" in decision.reason
    assert not orders(decision, commands.RebootInstance) and decision.record.reboots == ()


# -- a rank that cannot be stopped -------------------------------------------------------------------------------------


def test_a_rank_that_cannot_be_stopped_joins_what_is_held() -> None:
    """It stood in the way itself; both evidences are named, the higher rung stays, and all who waited hear the end."""
    shared = replace(checking(ON), claims={"sft-2": Claim(1, 4)})
    record = applied(tell(shared, verdict_of(shared, REPLACE), ON))
    assert record.held is not None and record.held.told == ("sft-2",)
    stuck = events.RepairRequested(at=later(5), job_id="sft-2", attempt=1, sentence="a rank cannot be stopped")
    decision = tell(record, stuck, ON, later(5))
    assert decision.record.status is S.REPLACING
    assert "it is REPLACE" in decision.reason and "a rank cannot be stopped" in decision.reason
    assert decision.record.need.ends == RankOnInstance("sft-2", 1)
    assert sorted(repair_ends(overdue(decision.record, ON))) == [("sft-1", False), ("sft-2", False)]
    assert tell(decision.record, stuck, ON, later(6)).outcome is EventOutcome.IGNORED


def test_the_same_wish_to_end_a_rank_is_not_added_again() -> None:
    """It may be delivered twice while the repair is held; the reason would grow with each."""
    record = applied(tell(claimed(), STUCK, ADAPTIVE, NOW, FULL))
    assert record.held is not None
    assert tell(record, STUCK, ADAPTIVE, later(9), FULL).outcome is EventOutcome.IGNORED


def test_a_wish_to_end_a_rank_that_nobody_may_meet_is_answered() -> None:
    """The held replacement goes to a person because replacing was switched off meanwhile: the job need not wait."""
    shared = replace(checking(ON), claims={"sft-2": Claim(1, 4)})
    record = applied(tell(shared, verdict_of(shared, REPLACE), ON))
    stuck = events.RepairRequested(at=later(5), job_id="sft-2", attempt=1, sentence="a rank cannot be stopped")
    decision = tell(record, stuck, ADAPTIVE, later(5))
    assert decision.record.status is S.QUARANTINED and decision.record.held is None
    assert sorted(repair_ends(decision)) == [("sft-1", False), ("sft-2", False)]
