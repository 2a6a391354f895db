"""Warnings about instances: watchers who find them impaired, and announcements that they will be taken away."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from gpu_recovery.core import commands, events
from gpu_recovery.core.fleet import Pause
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.health_signals import DepartureKind, HealthKind, HealthStatus, MachineState
from gpu_recovery.core.instance.record import Claim, Health, Instance, InstanceStatus, Rung
from gpu_recovery.core.state_machine import Decision, Outcome
from gpu_recovery.core.xid import XidClass, class_of

from tests.core.build import (
    ADAPTIVE,
    FLEET,
    NOW,
    applied,
    available,
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

S = InstanceStatus
IMPAIRED, OK, UNKNOWN = HealthStatus.IMPAIRED, HealthStatus.OK, HealthStatus.INSUFFICIENT_DATA
ON = replace(ADAPTIVE, replace=True)
PAUSED = replace(FLEET, pause=Pause("ada", "moving house", NOW))
DAY = 86_400


def _said(
    kind: HealthKind, status: HealthStatus = IMPAIRED, since: Any = NOW, xid: int | None = None
) -> events.HealthReported:
    return events.HealthReported(at=since, kind=kind, status=status, since=since, sentence="it says so", xid=xid)


def _announced(
    kind: DepartureKind, leaves_in: int, at: int = 0, source: str = "event-1", called_off: bool = False
) -> events.DepartureAnnounced:
    return events.DepartureAnnounced(
        at=later(at),
        kind=kind,
        source=source,
        leaves_at=later(leaves_in),
        sentence=f"{kind} at {leaves_in}",
        called_off=called_off,
    )


def _told_to_leave(decision: Decision[Any]) -> list[tuple[str, int]]:
    told = orders(decision, commands.TellJob)
    return [(one.job_id, one.event.attempt) for one in told if isinstance(one.event, events.InstanceLeaving)]


def _quarantined() -> Instance:
    order = events.QuarantineRequested(at=NOW, by="ada")
    return applied(tell(available(), order))


def _replacing() -> Instance:
    record = checking(ON)
    return applied(tell(record, verdict_of(record, CheckOutcome.REPLACE), ON))


MAKE: dict[InstanceStatus, Any] = {
    S.AVAILABLE: available,
    S.CHECKING: checking,
    S.REBOOTING: rebooting,
    S.REPLACING: _replacing,
    S.VERIFYING: verifying,
    S.QUARANTINED: _quarantined,
    S.GONE: lambda: applied(tell(available(), observed(2, ecs_status="INACTIVE"))),
}
LEADS_TO = {
    HealthKind.ACCELERATED_COMPUTE: S.CHECKING,
    HealthKind.SYSTEM_STATUS: S.REPLACING,
    HealthKind.INSTANCE_STATUS: S.REBOOTING,
    HealthKind.NODE_AGENT: S.CHECKING,
}


# -- watchers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "status", "where"), list(product(HealthKind, HealthStatus, InstanceStatus)))
def test_what_any_watcher_says_of_any_instance(kind: HealthKind, status: HealthStatus, where: InstanceStatus) -> None:
    """Only an impairment moves an instance, only one that works, and only to the rung that it asks for."""
    record = MAKE[where]()
    decision = tell(record, _said(kind, status), ON)
    if where is S.GONE:
        assert decision.outcome is Outcome.IGNORED
        return
    moves = where is S.AVAILABLE and status is IMPAIRED
    assert decision.record.status is (LEADS_TO.get(kind, where) if moves else where)
    assert (decision.record.health[kind].status, decision.record.health[kind].since) == (status, NOW)
    if not moves:
        assert decision.reason == record.reason
        assert not orders(decision, commands.TellJob) and not orders(decision, commands.RunCheck)


def test_a_watchers_words_are_ordered_by_when_they_were_said() -> None:
    """Events come in any order, and twice; watchers do not wait for each other."""
    record = applied(tell(available(), _said(HealthKind.DAEMON, OK, later(10))))
    for since in (later(9), later(10)):
        assert tell(record, _said(HealthKind.DAEMON, IMPAIRED, since)).outcome is Outcome.OUTDATED
    assert tell(record, _said(HealthKind.CONTAINER_RUNTIME, IMPAIRED, NOW)).outcome is Outcome.APPLIED
    assert tell(record, _said(HealthKind.DAEMON, IMPAIRED, later(11))).record.suspicion


@pytest.mark.parametrize("unsure", [UNKNOWN, HealthStatus.INITIALIZING])
def test_a_watcher_that_cannot_tell_takes_nothing_back(unsure: HealthStatus) -> None:
    """INSUFFICIENT_DATA is not OK: suspicion stays until somebody says that all is well."""
    record = applied(tell(available(), _said(HealthKind.DAEMON)))
    vague = tell(record, _said(HealthKind.DAEMON, unsure, later(1)))
    assert "DAEMON is IMPAIRED" in vague.record.suspicion and not orders(vague, commands.PokeScheduler)
    assert tell(vague.record, _said(HealthKind.DAEMON, IMPAIRED, later(1))).outcome is Outcome.OUTDATED
    well = tell(vague.record, _said(HealthKind.DAEMON, OK, later(2)))
    assert not well.record.suspicion and orders(well, commands.PokeScheduler)
    assert not tell(available(), _said(HealthKind.DAEMON, unsure)).record.suspicion


@pytest.mark.parametrize(
    ("xid", "checked"),
    [(None, True), (79, True), (48, True), (54, True), (7, True), (31, False), (45, False), (43, False), (63, False)],
)
def test_an_xid_that_says_nothing_of_the_hardware_is_only_noted(xid: int | None, checked: bool) -> None:
    """An application's fault, one that follows another, one to watch; what is unknown is looked at."""
    decision = tell(available(), _said(HealthKind.ACCELERATED_COMPUTE, xid=xid))
    assert decision.record.status is (S.CHECKING if checked else S.AVAILABLE)
    harmless = (XidClass.APP, XidClass.IGNORE, XidClass.WATCH, XidClass.FOLLOW_OTHER)
    assert xid is None or (class_of(xid) in harmless) is not checked
    assert decision.record.suspicion


def test_impaired_gpus_are_asked_beside_those_at_work() -> None:
    """The check reads what the machine has logged and takes no GPU; what it finds decides, not the watcher."""
    asked = tell(claimed(), _said(HealthKind.ACCELERATED_COMPUTE))
    assert asked.record.status is S.CHECKING and asked.record.check.passive and orders(asked, commands.RunCheck)
    assert not orders(asked, commands.TellJob) and asked.record.claims == claimed().claims
    passed = tell(asked.record, verdict_of(asked.record, CheckOutcome.HEALTHY))
    assert passed.record.status is S.AVAILABLE and passed.record.suspicion and passed.record.claims
    blamed = tell(asked.record, verdict_of(asked.record, CheckOutcome.REBOOT))
    (told,) = orders(blamed, commands.TellJob)
    assert blamed.record.status is S.QUARANTINED and isinstance(told.event, events.InstanceNeedsRepair)
    assert not tell(available(), _said(HealthKind.ACCELERATED_COMPUTE)).record.check.passive


def test_a_check_beside_a_job_gives_way_to_the_jobs_own() -> None:
    """The job has failed meanwhile and wants the instance checked: by a whole check, and the other one is stopped."""
    record = applied(tell(claimed(), _said(HealthKind.ACCELERATED_COMPUTE)))
    decision = tell(record, check_request())
    assert decision.record.status is S.CHECKING and decision.record.claims == {}
    assert not decision.record.check.passive and decision.record.check.job_id == "sft-1"
    assert orders(decision, commands.StopCheck) == [commands.StopCheck(record.check.check_id)]


def test_a_check_beside_a_job_that_never_answers_blames_nobody() -> None:
    """It only reads logs, and the job goes on beside it."""
    record = applied(tell(claimed(), _said(HealthKind.ACCELERATED_COMPUTE)))
    late = events.InstanceDeadlineReached(at=record.deadline_at, deadline_at=record.deadline_at)
    decision = tell(record, late, now=record.deadline_at)
    assert decision.record.status is S.AVAILABLE and decision.record.claims and orders(decision, commands.StopCheck)


@pytest.mark.parametrize("kind", [HealthKind.SYSTEM_STATUS, HealthKind.INSTANCE_STATUS])
def test_all_is_well_again_ends_the_hold_of_the_same_watcher_only(kind: HealthKind) -> None:
    """It must pass a check first; anybody else's word changes nothing."""
    record = applied(tell(available(), _said(kind), ON, NOW, PAUSED))
    assert record.status is S.QUARANTINED
    for other in (one for one in HealthKind if one is not kind):
        assert tell(record, _said(other, OK, later(1)), ON).record.status is S.QUARANTINED
    assert tell(record, _said(kind, UNKNOWN, later(1)), ON).record.status is S.QUARANTINED
    well = tell(record, _said(kind, OK, later(1)), ON)
    assert well.record.status is S.VERIFYING and not well.record.check.proof_needed
    assert tell(well.record, verdict_of(well.record, CheckOutcome.HEALTHY), ON).record.status is S.AVAILABLE
    sick = tell(well.record, verdict_of(well.record, CheckOutcome.REBOOT), ON)
    assert sick.record.status is S.QUARANTINED and sick.record.held is None


def test_a_word_taken_back_while_jobs_leave_is_not_acted_on_when_they_have_left() -> None:
    """Evidence that nobody stands by any more reboots nothing: the instance is only checked."""
    record = applied(tell(claimed(), _said(HealthKind.INSTANCE_STATUS)))
    record = applied(tell(record, check_request("sft-9", 2)))
    record = applied(tell(record, _said(HealthKind.INSTANCE_STATUS, OK, later(1))))
    look = events.InstanceLookDue(at=later(30), look_at=record.look_at)
    assert tell(record, look, now=later(30)).record.status is S.QUARANTINED
    decision = tell(replace(record, claims={}), look, now=later(30))
    assert decision.record.status is S.VERIFYING and not orders(decision, commands.RebootInstance)
    passed = tell(decision.record, verdict_of(decision.record, CheckOutcome.HEALTHY))
    assert [(one.job_id, one.event.healed) for one in orders(passed, commands.TellJob)] == [("sft-9", True)]


def test_a_machine_found_impaired_while_it_was_busy_is_thought_of_when_it_works_again() -> None:
    """No GPU check shows a failing host. The watcher has a while to take its word back, as after any reboot."""
    record = applied(tell(checking(), _said(HealthKind.SYSTEM_STATUS)))
    works = applied(tell(record, verdict_of(record, CheckOutcome.HEALTHY)))
    assert works.status is S.AVAILABLE and works.deadline_at == later(ADAPTIVE.reboot_settle_s)
    assert overdue(works, ON).record.status is S.REPLACING
    well = applied(tell(works, _said(HealthKind.SYSTEM_STATUS, OK, later(1))))
    calm = overdue(well, ON)
    assert calm.record.status is S.AVAILABLE


def test_a_proved_repair_forgets_what_watchers_on_the_machine_said_before_it() -> None:
    """They begin anew with its boot; if their OK is lost, a healed instance must not stay idle for ever."""
    impaired = {HealthKind.ACCELERATED_COMPUTE: Health(IMPAIRED, NOW), HealthKind.SYSTEM_STATUS: Health(IMPAIRED, NOW)}
    record = verifying(health=impaired)
    healed = applied(tell(record, verdict_of(record, CheckOutcome.HEALTHY, "boot-2")))
    assert healed.health[HealthKind.ACCELERATED_COMPUTE].status is UNKNOWN
    assert healed.health[HealthKind.SYSTEM_STATUS].status is IMPAIRED  # EC2 is asked each minute
    again = _said(HealthKind.ACCELERATED_COMPUTE)
    assert tell(healed, again).outcome is Outcome.OUTDATED


# -- announcements -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", [status for status in InstanceStatus if status is not S.GONE])
def test_an_interruption_tells_those_at_work_at_once_wherever_the_instance_is(where: InstanceStatus) -> None:
    """Two minutes: also while others of its jobs have it checked, or a person has taken it out of use."""
    record = replace(MAKE[where](), claims={"other-1": Claim(2, 4)})
    decision = tell(record, _announced(DepartureKind.INTERRUPTION, 120), ON)
    assert decision.record.status is where
    assert _told_to_leave(decision) == [("other-1", 2)]
    assert decision.record.departure is not None


@pytest.mark.parametrize("kind", [DepartureKind.RETIREMENT, DepartureKind.MAINTENANCE])
def test_jobs_are_moved_an_hour_before_what_is_announced_for_later(kind: DepartureKind) -> None:
    """Nothing new comes meanwhile; the deadline wakes the instance in time."""
    record = applied(tell(claimed(), _announced(kind, DAY)))
    assert record.suspicion == f"{kind} at {DAY}" and record.deadline_at == later(DAY - ADAPTIVE.leave_lead_s)
    decision = overdue(record)
    assert decision.record.status is S.AVAILABLE and _told_to_leave(decision) == [("sft-1", 1)]
    assert _told_to_leave(tell(claimed(), _announced(kind, ADAPTIVE.leave_lead_s))) == [("sft-1", 1)]
    assert _told_to_leave(tell(claimed(), _announced(kind, ADAPTIVE.leave_lead_s + 1))) == []


def test_a_retirement_is_met_by_replacing_where_that_is_allowed() -> None:
    """Those at work leave first."""
    record = applied(tell(claimed(), _announced(DepartureKind.RETIREMENT, DAY), ON))
    decision = overdue(record, ON)
    assert decision.record.status is S.QUARANTINED and decision.record.need.rung is Rung.REPLACE
    assert [type(one.event) for one in orders(decision, commands.TellJob)] == [events.InstanceNeedsRepair]
    idle = applied(tell(available(), _announced(DepartureKind.RETIREMENT, DAY), ON))
    begins = overdue(idle, ON)
    assert begins.record.status is S.REPLACING
    assert begins.fleet is not None and begins.fleet.blamed == {}  # an announcement blames nobody


def test_what_is_graver_is_news_and_what_is_not_is_known() -> None:
    """Rebalance, maintenance, retirement, interruption: in this order."""
    kinds = (DepartureKind.REBALANCE, DepartureKind.MAINTENANCE, DepartureKind.RETIREMENT, DepartureKind.INTERRUPTION)
    for (low, known), (high, kind) in product(enumerate(kinds), enumerate(kinds)):
        record = applied(tell(available(), _announced(known, 5 * DAY, source="one")))
        decision = tell(record, _announced(kind, 9 * DAY, at=1, source="two"))
        if high >= low:
            assert decision.record.departure.source == "two", (known, kind)
        else:
            assert decision.outcome is Outcome.IGNORED, (known, kind)


def test_the_same_fate_by_two_ways_is_one() -> None:
    """AWS Health and EC2 tell of the same event under names of their own; an hour's difference is another date."""
    record = applied(tell(available(), _announced(DepartureKind.RETIREMENT, DAY, source="arn:one")))
    assert tell(record, _announced(DepartureKind.RETIREMENT, DAY + 3_599, 1, "event-2")).outcome is Outcome.IGNORED
    moved = applied(tell(record, _announced(DepartureKind.RETIREMENT, DAY + 3_600, 1, "event-2")))
    assert moved.deadline_at == later(DAY + 3_600 - ADAPTIVE.leave_lead_s)
    off = tell(record, _announced(DepartureKind.RETIREMENT, DAY, 2, "event-2", called_off=True))
    assert off.record.departure is None and orders(off, commands.PokeScheduler)


def test_a_date_that_has_moved_is_not_moved_back_by_an_old_announcement() -> None:
    """Events come twice and in any order: of one source only what is newer is heard."""
    first = _announced(DepartureKind.RETIREMENT, DAY)
    record = applied(tell(available(), first))
    record = applied(tell(record, _announced(DepartureKind.RETIREMENT, 9 * DAY, at=60)))
    assert tell(record, first).outcome is Outcome.OUTDATED
    off = applied(tell(record, _announced(DepartureKind.RETIREMENT, 9 * DAY, at=90, called_off=True)))
    assert off.departure is None
    for again in (first, _announced(DepartureKind.RETIREMENT, 9 * DAY, at=60)):
        assert tell(off, again).outcome is Outcome.OUTDATED
    assert tell(off, _announced(DepartureKind.RETIREMENT, 9 * DAY, at=91)).record.departure is not None


def test_a_call_off_that_overtakes_its_announcement_wins() -> None:
    """Else the instance would be left for what will never come."""
    record = applied(tell(available(), _announced(DepartureKind.MAINTENANCE, DAY, at=60, called_off=True)))
    assert tell(record, _announced(DepartureKind.MAINTENANCE, DAY, at=0)).outcome is Outcome.OUTDATED
    assert not record.suspicion


def test_calling_off_ends_what_was_held_for_it() -> None:
    """Through a check; with jobs still leaving, once they have left."""
    due = _announced(DepartureKind.RETIREMENT, 60)
    off = _announced(DepartureKind.RETIREMENT, 60, at=1, called_off=True)
    held = applied(tell(available(), due, ON, NOW, PAUSED))
    assert tell(held, off, ON).record.status is S.VERIFYING
    busy = applied(tell(claimed(), due, ON))
    busy = applied(tell(busy, off, ON))
    assert busy.status is S.QUARANTINED
    look = events.InstanceLookDue(at=later(30), look_at=busy.look_at)
    assert tell(replace(busy, claims={}), look, ON, later(30)).record.status is S.VERIFYING


def test_a_rebalance_recommendation_moves_nobody_and_is_forgotten() -> None:
    """It is only more likely than usual to be interrupted."""
    record = applied(tell(claimed(), _announced(DepartureKind.REBALANCE, 0)))
    assert record.suspicion and record.deadline_at == later(ADAPTIVE.avoid_s)
    decision = overdue(record)
    assert decision.record.suspicion == "" and _told_to_leave(decision) == []
    assert orders(decision, commands.PokeScheduler)


@pytest.mark.parametrize("kind", [DepartureKind.INTERRUPTION, DepartureKind.MAINTENANCE])
def test_a_machine_still_there_long_after_it_was_to_go_is_used_again(kind: DepartureKind) -> None:
    """Who announced it may never say that it was called off."""
    record = applied(tell(claimed(), _announced(kind, 120)))
    assert record.suspicion and record.deadline_at == later(120 + ADAPTIVE.avoid_s)
    decision = overdue(record)
    assert (decision.record.suspicion, decision.record.deadline_at) == ("", None)


def test_an_instance_that_is_left_is_kept_for_nobody() -> None:
    """A reservation without a deadline would keep it from everybody for ever."""
    record = applied(tell(record := checking(), verdict_of(record, CheckOutcome.HEALTHY)))
    assert record.reserved_for == "sft-1"
    left = applied(tell(record, _announced(DepartureKind.INTERRUPTION, 120)))
    assert left.reserved_for == "" and left.deadline_at is not None
    waits = applied(tell(record, _announced(DepartureKind.RETIREMENT, DAY)))
    assert waits.reserved_for == "sft-1" and waits.deadline_at == later(ADAPTIVE.reserve_s)
    free = overdue(waits).record
    assert free.reserved_for == "" and free.deadline_at == later(DAY - ADAPTIVE.leave_lead_s)
    assert NOW + timedelta(seconds=ADAPTIVE.reserve_s) < free.deadline_at


def test_what_was_announced_while_it_was_busy_is_acted_on_when_it_works() -> None:
    """It is due the moment it works again."""
    record = applied(tell(checking(), _announced(DepartureKind.RETIREMENT, 60), ON))
    works = applied(tell(record, verdict_of(record, CheckOutcome.HEALTHY), ON))
    assert works.deadline_at is not None and works.deadline_at <= NOW
    assert overdue(works, ON).record.status is S.REPLACING


def test_a_machine_that_has_gone_remembers_no_warning_but_when_each_was_given() -> None:
    """What comes back is another boot, perhaps another host; what is delivered late is about the old one."""
    record = applied(tell(available(), _said(HealthKind.DAEMON)))
    record = applied(tell(record, _announced(DepartureKind.RETIREMENT, DAY)))
    off = events.MachineSeen(at=later(1), state=MachineState.STOPPED)
    gone = applied(tell(record, off, now=later(1)))
    assert gone.suspicion == ""
    back = applied(tell(gone, observed(1, container_instance_id="ci-2"), now=later(2)))
    assert tell(back, _said(HealthKind.DAEMON)).outcome is Outcome.OUTDATED
    assert tell(back, _announced(DepartureKind.RETIREMENT, DAY)).outcome is Outcome.OUTDATED


def test_the_record_of_announcements_is_bounded() -> None:
    """Every event of AWS Health has a name of its own."""
    record = available()
    for n in range(50):
        called_off = _announced(DepartureKind.MAINTENANCE, DAY, at=n, source=f"event-{n}", called_off=True)
        record = applied(tell(record, called_off))
    assert list(record.announced) == [f"event-{n}" for n in range(42, 50)]
    long = replace(_said(HealthKind.DAEMON, since=later(99)), sentence="x" * 5_000)
    assert len(applied(tell(record, long)).health[HealthKind.DAEMON].sentence) == 500
