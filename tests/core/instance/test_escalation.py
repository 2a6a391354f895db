"""The ladder: which rung a need is met on, what holds it back meanwhile, and what a replacement goes through."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from gpu_recovery.core import commands, events
from gpu_recovery.core.fleet import Breaker, Fleet, Pause, begun, blame
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.health_signals import DepartureKind, HealthKind, HealthStatus, MachineState
from gpu_recovery.core.instance.record import Claim, Departure, Instance, InstanceStatus, Rank, Rung
from gpu_recovery.core.policy import RecoveryPolicy
from gpu_recovery.core.state_machine import Decision, Outcome

from tests.core.build import (
    ADAPTIVE,
    FLEET,
    IDS,
    NOW,
    STUCK,
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

HEALTHY, REBOOT, REPLACE = CheckOutcome.HEALTHY, CheckOutcome.REBOOT, CheckOutcome.REPLACE
S = InstanceStatus
ON = replace(ADAPTIVE, replace=True)
PAUSED = replace(FLEET, pause=Pause("ada", "moving house", NOW))
FULL = Fleet(gpu_instances=5, repairing=frozenset({"i-other"}))


def _look(record: Instance, policy: RecoveryPolicy = ADAPTIVE, fleet: Fleet = FLEET, at: Any = None) -> Decision[Any]:
    assert record.look_at is not None
    when = at or record.look_at
    return tell(record, events.InstanceLookDue(at=when, look_at=record.look_at), policy, when, fleet)


def _overdue(record: Instance, policy: RecoveryPolicy = ADAPTIVE, fleet: Fleet = FLEET) -> Decision[Any]:
    assert record.deadline_at is not None
    event = events.InstanceDeadlineReached(at=record.deadline_at, deadline_at=record.deadline_at)
    return tell(record, event, policy, record.deadline_at, fleet)


def _blamed(outcome: CheckOutcome, policy: RecoveryPolicy = ADAPTIVE, fleet: Fleet = FLEET, **fields: Any) -> Any:
    record = checking(policy, **fields)
    return tell(record, verdict_of(record, outcome), policy, NOW, fleet)


def _held(fleet: Fleet = FULL, policy: RecoveryPolicy = ADAPTIVE, **fields: Any) -> Instance:
    """An instance blamed for sft-1 whose reboot the brakes hold back."""
    return applied(_blamed(REBOOT, policy, fleet, **fields))


def _ended(decision: Decision[Any]) -> list[tuple[str, bool]]:
    """Who hears that the repair has ended, and how."""
    told = orders(decision, commands.TellJob)
    return [(one.job_id, one.event.healed) for one in told if isinstance(one.event, events.RepairEnded)]


def _asked_to_leave(decision: Decision[Any]) -> list[tuple[str, int]]:
    told = orders(decision, commands.TellJob)
    return [(one.job_id, one.event.attempt) for one in told if isinstance(one.event, events.InstanceNeedsRepair)]


# -- the rungs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("policy", "last"), [(ADAPTIVE, S.QUARANTINED), (ON, S.REPLACING)], ids=["off", "on"])
@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"reboots": (later(-60), later(-120))}, "it was rebooted 2 time(s) within 86400 s"),
        ({"healed_at": later(-3_599)}, "its last repair held for less than 3600 s"),
        (
            {"departure": Departure(DepartureKind.RETIREMENT, "event-1", later(10**6), "it is retired")},
            "its host is to be retired",
        ),
    ],
    ids=["cap", "relapse", "retirement"],
)
def test_what_a_reboot_does_not_cure_goes_one_rung_up(
    fields: dict[str, Any], says: str, policy: RecoveryPolicy, last: InstanceStatus
) -> None:
    """By its cap, by a relapse, by a retirement; and where replacing is switched off, to a person."""
    decision = _blamed(REBOOT, policy, **fields)
    assert decision.record.status is last and says in decision.reason
    assert not orders(decision, commands.RebootInstance)
    assert ("switched off" in decision.reason) is (last is S.QUARANTINED)


@pytest.mark.parametrize("fields", [{"reboots": (later(-60), later(-86_400))}, {"healed_at": later(-3_600)}])
def test_what_is_long_ago_pushes_nothing_up(fields: dict[str, Any]) -> None:
    """The window and the relapse end to the second."""
    assert _blamed(REBOOT, ON, **fields).record.status is S.REBOOTING


def test_a_reboot_that_is_to_end_a_rank_is_no_cure_and_never_pushed_up() -> None:
    """However often the machine was rebooted: stopping it would end the rank no better."""
    worn = claimed(reboots=(later(-60), later(-120)), healed_at=later(-60))
    assert tell(worn, STUCK, ON).record.status is S.REBOOTING


def test_a_reboot_that_never_comes_back_is_replaced_where_that_is_allowed() -> None:
    """A stop ends whatever still hangs there; else a person must, and the job hears so."""
    on = _overdue(rebooting(ON), ON)
    assert on.record.status is S.REPLACING and orders(on, commands.ReplaceInstance)
    assert _ended(on) == []
    off = _overdue(rebooting())
    assert off.record.status is S.QUARANTINED and _ended(off) == [("sft-1", False)]
    held = _overdue(rebooting(ON), ON, replace(FLEET, pause=PAUSED.pause, repairing=frozenset(IDS[:1])))
    assert held.record.status is S.QUARANTINED and held.record.held is not None and _ended(held) == []


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


# -- another host ------------------------------------------------------------------------------------------------------


def _restarted(**fields: Any) -> Instance:
    """An instance that must be replaced, stopped and started, whose agent is back; it showed boot-1 before."""
    record = applied(_blamed(REPLACE, ON, **fields))
    record = applied(tell(record, observed(2, agent_connected=False), ON))
    record = applied(tell(record, events.MachineSeen(at=NOW, state=MachineState.STOPPED), ON))
    return applied(tell(record, observed(3), ON))


def test_a_replacement_stops_starts_and_proves_another_boot() -> None:
    """REPLACING until it is off, started once, VERIFYING with proof when its agent is back, then AVAILABLE."""
    record = applied(_blamed(REPLACE, ON, gpus_most=8))
    assert record.status is S.REPLACING
    assert tell(record, observed(2), ON).record.status is S.REPLACING  # still up: nothing was asked of it yet
    for state in (MachineState.RUNNING, MachineState.STOPPING, MachineState.SHUTTING_DOWN):
        assert tell(record, events.MachineSeen(at=NOW, state=state), ON).outcome is Outcome.IGNORED
    off = tell(record, events.MachineSeen(at=NOW, state=MachineState.STOPPED), ON)
    assert orders(off, commands.StartInstance) == [commands.StartInstance(record.epoch)]
    again = tell(off.record, events.MachineSeen(at=later(1), state=MachineState.STOPPED), ON)
    assert not orders(again, commands.StartInstance)
    back = _restarted()
    assert back.status is S.VERIFYING and back.check is not None and back.check.proof_needed
    assert tell(back, verdict_of(back, HEALTHY, "boot-1"), ON).record.status is S.REPLACING
    healed = tell(back, verdict_of(back, HEALTHY, "boot-2"), ON)
    assert (healed.record.status, healed.record.replaced_at) == (S.AVAILABLE, NOW)
    assert _ended(healed) == [("sft-1", True)]


def test_a_machine_that_is_off_has_ended_its_ranks() -> None:
    """Stopped is one of the three confirmed ends."""
    record = applied(_blamed(REPLACE, ON))
    record = replace(record, claims={"other-1": Claim(2, 4)})
    decision = tell(record, events.MachineSeen(at=NOW, state=MachineState.STOPPED), ON)
    assert decision.record.claims == {}
    assert [(one.job_id, one.attempt) for one in orders(decision, commands.ConfirmEnd)] == [("other-1", 2)]


def test_a_machine_terminated_in_its_group_is_gone_and_the_job_hears_so() -> None:
    """Its successor registers under a name of its own."""
    record = applied(_blamed(REPLACE, ON))
    busy = begun(FLEET, record.instance_id, ON, NOW)
    decision = tell(record, events.MachineSeen(at=NOW, state=MachineState.TERMINATED), ON, NOW, busy)
    assert decision.record.status is S.GONE
    assert _ended(decision) == [("sft-1", False)]
    assert orders(decision, commands.DeregisterInstance)
    assert decision.fleet is not None and decision.fleet.repairing == frozenset()


@pytest.mark.parametrize("make", [rebooting, verifying, lambda: applied(_blamed(REPLACE, ON))])
def test_one_that_goes_while_it_tries_opens_the_breaker_again(make: Any) -> None:
    """Terminated, it has not come back healed: a broken check would have its way with the next one, and the next."""
    opened = replace(FLEET, opened_at=later(-9_999), opened_because="many", incident_id="breaker/1")
    trying = begun(opened, IDS[0], ON, NOW)
    for leaves in (
        events.MachineSeen(at=later(5), state=MachineState.TERMINATED),
        observed(9, ecs_status="INACTIVE", agent_connected=False),
    ):
        after = tell(make(), leaves, ON, later(5), trying).fleet
        assert after is not None
        assert (after.breaker, after.probe, after.repairing) == (Breaker.OPEN, "", frozenset())
        assert after.opened_at == later(5)


@pytest.mark.parametrize("outcome", [REPLACE, REBOOT])
def test_another_host_is_put_under_a_machine_once_not_again_and_again(outcome: CheckOutcome) -> None:
    """If it is sick on the new host too, a person looks at it: no stopping and starting all night."""
    record = _restarted(reboots=(later(-60), later(-120)))
    decision = tell(record, verdict_of(record, outcome, "boot-2"), ON)
    assert decision.record.status is S.QUARANTINED and "another host was put under it" in decision.reason
    assert not orders(decision, commands.ReplaceInstance)
    assert _ended(decision) == [("sft-1", False)]


def test_on_another_host_the_retirement_of_the_old_one_is_over() -> None:
    """Else it would be left, stopped and started again as soon as it works; EC2's list may lag behind."""
    departure = Departure(DepartureKind.RETIREMENT, "event-1", later(60), "its host is retired")
    record = _restarted(departure=departure)
    healed = applied(tell(record, verdict_of(record, HEALTHY, "boot-2"), ON))
    assert healed.departure is None and not healed.suspicion
    lagging = events.DepartureAnnounced(
        at=later(1),
        kind=DepartureKind.RETIREMENT,
        source="event-1",
        leaves_at=later(60),
        sentence="its host is retired",
    )
    assert tell(healed, lagging, ON, later(1)).outcome is Outcome.IGNORED


def test_a_replacement_that_never_comes_back_goes_to_a_person() -> None:
    """The last deadline of the ladder."""
    decision = _overdue(applied(_blamed(REPLACE, ON)), ON)
    assert decision.record.status is S.QUARANTINED and decision.record.held is None
    assert _ended(decision) == [("sft-1", False)]


# -- what is held back -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fleet", "says"),
    [
        (FULL, "1 of at most 1 instance(s) are under repair: i-other"),
        (PAUSED, "recovery is paused by ada: moving house"),
        (Fleet(gpu_instances=9, opened_at=NOW, opened_because="4 of 9 looked bad"), "the breaker is open: 4 of 9"),
    ],
    ids=["budget", "pause", "breaker"],
)
def test_the_reason_of_what_is_held_names_what_stands_in_the_way(fleet: Fleet, says: str) -> None:
    """The job is told that it is being repaired, for it will be."""
    decision = _blamed(REBOOT, ADAPTIVE, fleet)
    assert decision.record.status is S.QUARANTINED and says in decision.reason
    assert decision.record.need is not None and decision.record.need.rung is Rung.REBOOT
    assert [one.repairing for one in orders(decision, commands.ReportCheck)] == [True]
    assert orders(decision, commands.DrainInstance) and not orders(decision, commands.RebootInstance)


def test_the_instance_whose_blame_opens_the_breaker_is_held_by_it() -> None:
    """The decision that counts it must not be the last one that slips through."""
    fleet = Fleet(gpu_instances=4)
    for name in ("i-a", "i-b"):
        fleet = blame(fleet, name, 8, ADAPTIVE, NOW)
    decision = _blamed(REBOOT, ADAPTIVE, fleet)
    assert decision.record.status is S.QUARANTINED and "the breaker is open: 3 of 4" in decision.reason
    assert decision.fleet is not None and decision.fleet.breaker is Breaker.OPEN


def test_what_is_held_asks_again_at_each_look_and_begins_when_it_may() -> None:
    """Nothing is ordered twice meanwhile, and its time does not begin anew."""
    record = _held()
    for n in range(1, 6):
        assert record.look_at == later(ADAPTIVE.hold_look_s * n)
        decision = _look(record, fleet=FULL)
        assert decision.commands == () and decision.record.held.since == NOW
        record = decision.record
    begins = _look(record)
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
    again = _look(record)
    assert _asked_to_leave(again) == [("c-1", 2)]
    assert _asked_to_leave(_look(again.record)) == []
    assert _look(replace(again.record, claims={})).record.status is S.REBOOTING


def test_old_evidence_is_looked_at_afresh_by_a_check_before_anything_is_repaired() -> None:
    """What was seen half an hour ago may be over; the job that waits hears what the check says."""
    record = replace(_held(), look_at=later(ADAPTIVE.evidence_stale_s))
    still = _look(record, fleet=FULL)
    assert still.record.status is S.QUARANTINED
    fresh = _look(record)
    assert fresh.record.status is S.CHECKING and orders(fresh, commands.RunCheck)
    assert orders(fresh, commands.ActivateInstance) and not orders(fresh, commands.RebootInstance)
    well = tell(fresh.record, verdict_of(fresh.record, HEALTHY))
    assert (well.record.status, _ended(well)) == (S.AVAILABLE, [("sft-1", True)])
    assert (well.record.held, well.record.need) == (None, None)
    unclear = tell(fresh.record, verdict_of(fresh.record, CheckOutcome.INCONCLUSIVE))
    assert _ended(unclear) == [("sft-1", False)]
    sick = tell(fresh.record, verdict_of(fresh.record, REBOOT))
    assert (sick.record.status, _ended(sick)) == (S.REBOOTING, [])
    assert _ended(_overdue(sick.record)) == [("sft-1", False)]


def test_a_fresh_look_does_not_begin_the_wait_anew() -> None:
    """Held, checked, and held again by the brakes: a person decides in the end all the same."""
    record = replace(_held(), look_at=later(ADAPTIVE.evidence_stale_s))
    fresh = _look(record).record
    again = tell(fresh, verdict_of(fresh, REBOOT), now=later(4_000), fleet=FULL).record
    assert again.status is S.QUARANTINED and again.held.since == NOW
    assert again.deadline_at == later(ADAPTIVE.hold_timeout_s)


def test_evidence_that_no_check_could_confirm_is_not_looked_at_afresh() -> None:
    """Without its agent no check can run, and a rank that cannot be stopped is no matter of health."""
    at = later(ADAPTIVE.evidence_stale_s)
    away = replace(_held(), agent_connected=False, look_at=at)
    assert _look(away).record.status is S.REBOOTING
    stuck = replace(applied(tell(claimed(), STUCK, ADAPTIVE, NOW, FULL)), look_at=at)
    assert _look(stuck).record.status is S.REBOOTING


def test_what_is_held_too_long_goes_to_a_person_and_the_job_hears_so() -> None:
    """Six hours: nothing waits for ever."""
    record = _held()
    assert record.deadline_at == later(ADAPTIVE.hold_timeout_s)
    decision = _overdue(record, fleet=FULL)
    assert (decision.record.status, decision.record.held, decision.record.need) == (S.QUARANTINED, None, None)
    assert "was held back for 21600 s: 1 of at most 1" in decision.reason
    assert _ended(decision) == [("sft-1", False)]
    assert decision.record.look_at is None


# -- the second look ---------------------------------------------------------------------------------------------------


def _second_look(record: Instance, now: datetime = NOW) -> events.RepairHeld:
    return events.RepairHeld(at=now, epoch=record.epoch, sentence="a person keeps it back by its maintenance tag")


def test_what_the_second_look_holds_back_is_as_if_it_had_never_begun() -> None:
    """No reboot is counted, of the instance or of the fleet, and a breaker's turn is not used up."""
    record = rebooting()
    brakes = begun(FLEET, record.instance_id, ADAPTIVE, NOW)
    decision = tell(record, _second_look(record), fleet=brakes)
    assert decision.record.status is S.QUARANTINED and "maintenance tag" in decision.reason
    assert (decision.record.reboots, decision.record.reboot) == ((), None)
    assert decision.fleet == FLEET
    assert _ended(decision) == []
    opened = replace(FLEET, opened_at=later(-9_999), opened_because="many")
    tried = tell(record, _second_look(record), fleet=begun(opened, record.instance_id, ADAPTIVE, NOW))
    assert tried.fleet == opened


def test_what_the_second_look_holds_back_is_not_tried_again_on_the_same_evidence() -> None:
    """Every half minute anew it would fill the history, the fleet's hour and the operators' mailboxes for nothing."""
    record, waited = rebooting(), NOW
    first = applied(tell(record, _second_look(record)))
    assert first.look_at == later(ADAPTIVE.evidence_stale_s)
    fresh = _look(first).record
    assert fresh.status is S.CHECKING and first.look_at is not None
    again = applied(tell(fresh, verdict_of(fresh, REBOOT), now=first.look_at))
    held = applied(tell(again, _second_look(again, first.look_at), now=first.look_at))
    assert held.held is not None and held.held.since == waited
    assert held.deadline_at == later(ADAPTIVE.hold_timeout_s)


def test_a_refusal_at_the_second_look_goes_to_a_person() -> None:
    """A machine that nobody handed over stays so: nothing is asked again."""
    for record in (rebooting(), applied(_blamed(REPLACE, ON))):
        refused = events.RepairRefused(at=NOW, epoch=record.epoch, sentence="it is not handed over")
        decision = tell(record, refused, ON)
        assert (decision.record.status, decision.record.held) == (S.QUARANTINED, None)
        assert _ended(decision) == [("sft-1", False)]


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
    assert decision.record.need.ends == Rank("sft-2", 1)
    assert sorted(_ended(_overdue(decision.record, ON))) == [("sft-1", False), ("sft-2", False)]
    assert tell(decision.record, stuck, ON, later(6)).outcome is Outcome.IGNORED


def test_the_same_wish_to_end_a_rank_is_not_added_again() -> None:
    """It may be delivered twice while the repair is held; the reason would grow with each."""
    record = applied(tell(claimed(), STUCK, ADAPTIVE, NOW, FULL))
    assert record.held is not None
    assert tell(record, STUCK, ADAPTIVE, later(9), FULL).outcome is Outcome.IGNORED


def test_a_wish_to_end_a_rank_that_nobody_may_meet_is_answered() -> None:
    """The held replacement goes to a person because replacing was switched off meanwhile: the job need not wait."""
    shared = replace(checking(ON), claims={"sft-2": Claim(1, 4)})
    record = applied(tell(shared, verdict_of(shared, REPLACE), ON))
    stuck = events.RepairRequested(at=later(5), job_id="sft-2", attempt=1, sentence="a rank cannot be stopped")
    decision = tell(record, stuck, ADAPTIVE, later(5))
    assert decision.record.status is S.QUARANTINED and decision.record.held is None
    assert sorted(_ended(decision)) == [("sft-1", False), ("sft-2", False)]


# -- who waits ---------------------------------------------------------------------------------------------------------


def test_every_job_that_asked_during_a_repair_hears_its_end_once() -> None:
    """Three jobs shared the instance; the repair is for the first, the others asked while it was held."""
    record = _held()
    for job_id in ("sft-2", "sft-3"):
        record = applied(tell(record, check_request(job_id, 2), ADAPTIVE, NOW, FULL))
    everyone = [("sft-1", False), ("sft-2", False), ("sft-3", False)]
    assert sorted(_ended(_overdue(record, fleet=FULL))) == everyone
    begins = _look(record).record
    assert sorted(_ended(_overdue(begins))) == everyone
    fresh = _look(replace(record, look_at=later(ADAPTIVE.evidence_stale_s))).record
    healed = tell(fresh, verdict_of(fresh, HEALTHY))
    assert sorted(_ended(healed)) == [(name, True) for name, _ in everyone]
    assert healed.record.also_waiting == ()


def test_a_job_past_its_repairs_has_nothing_more_repaired() -> None:
    """Its check blames, which counts for the breaker, and a person has the machine."""
    decision = tell((record := checking(may_reboot=False)), verdict_of(record, REBOOT))
    assert decision.record.status is S.QUARANTINED and "nothing more is repaired for sft-1" in decision.reason
    assert decision.fleet is not None and list(decision.fleet.blamed) == [IDS[0]]


# -- draining ----------------------------------------------------------------------------------------------------------


def test_what_a_person_has_drained_is_the_persons_to_activate() -> None:
    """Neither drained again by us nor activated behind their back."""
    decision = _blamed(REBOOT, ADAPTIVE, ecs_status="DRAINING")
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
    record = applied(_blamed(REPLACE))
    record = applied(tell(record, observed(2, ecs_status="DRAINING")))
    gone = applied(tell(record, events.MachineSeen(at=later(9), state=MachineState.STOPPED), now=later(9)))
    assert gone.status is S.GONE
    off = applied(tell(gone, observed(3, ecs_status="DRAINING", agent_connected=False)))
    assert off.status is S.GONE
    back = tell(off, observed(4, ecs_status="DRAINING"))
    assert back.record.status is S.VERIFYING and orders(back, commands.ActivateInstance)
