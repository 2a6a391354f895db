"""Announcements that an instance will be taken away: kept, acted on in time, called off, forgotten."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from gpu_recovery.core import commands, events
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.health_signals import DepartureKind, Ec2InstanceState, HealthKind, HealthStatus
from gpu_recovery.core.instance.record import Claim, InstanceStatus, RepairLevel
from gpu_recovery.core.state_machine import Decision, EventOutcome

from tests.core.build import (
    ADAPTIVE,
    NOW,
    applied,
    available,
    checking,
    claimed,
    later,
    observed,
    orders,
    overdue,
    tell,
    verdict_of,
)
from tests.core.instance.health_cases import IN_STATUS, PAUSED, health_report

S = InstanceStatus
IMPAIRED, OK, UNKNOWN = HealthStatus.IMPAIRED, HealthStatus.OK, HealthStatus.INSUFFICIENT_DATA
ON = replace(ADAPTIVE, replace=True)
DAY = 86_400


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


@pytest.mark.parametrize("where", [status for status in InstanceStatus if status is not S.GONE])
def test_an_interruption_tells_those_at_work_at_once_wherever_the_instance_is(where: InstanceStatus) -> None:
    """Two minutes: also while others of its jobs have it checked, or a person has taken it out of use."""
    record = replace(IN_STATUS[where](), claims={"other-1": Claim(2, 4)})
    decision = tell(record, _announced(DepartureKind.INTERRUPTION, 120), ON)
    assert decision.record.status is where
    assert _told_to_leave(decision) == [("other-1", 2)]
    assert decision.record.departure is not None


@pytest.mark.parametrize("kind", [DepartureKind.RETIREMENT, DepartureKind.MAINTENANCE])
def test_jobs_are_moved_an_hour_before_what_is_announced_for_later(kind: DepartureKind) -> None:
    """Nothing new comes meanwhile; the deadline wakes the instance in time."""
    record = applied(tell(claimed(), _announced(kind, DAY)))
    assert record.avoid_reason == f"{kind} at {DAY}" and record.deadline_at == later(DAY - ADAPTIVE.departure_lead_s)
    decision = overdue(record)
    assert decision.record.status is S.AVAILABLE and _told_to_leave(decision) == [("sft-1", 1)]
    assert _told_to_leave(tell(claimed(), _announced(kind, ADAPTIVE.departure_lead_s))) == [("sft-1", 1)]
    assert _told_to_leave(tell(claimed(), _announced(kind, ADAPTIVE.departure_lead_s + 1))) == []


def test_a_retirement_is_met_by_replacing_where_that_is_allowed() -> None:
    """Those at work leave first."""
    record = applied(tell(claimed(), _announced(DepartureKind.RETIREMENT, DAY), ON))
    decision = overdue(record, ON)
    assert decision.record.status is S.QUARANTINED and decision.record.need.rung is RepairLevel.REPLACE
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
            assert decision.outcome is EventOutcome.IGNORED, (known, kind)


def test_the_same_fate_by_two_ways_is_one() -> None:
    """AWS Health and EC2 tell of the same event under names of their own; an hour's difference is another date."""
    record = applied(tell(available(), _announced(DepartureKind.RETIREMENT, DAY, source="arn:one")))
    assert tell(record, _announced(DepartureKind.RETIREMENT, DAY + 3_599, 1, "event-2")).outcome is EventOutcome.IGNORED
    moved = applied(tell(record, _announced(DepartureKind.RETIREMENT, DAY + 3_600, 1, "event-2")))
    assert moved.deadline_at == later(DAY + 3_600 - ADAPTIVE.departure_lead_s)
    off = tell(record, _announced(DepartureKind.RETIREMENT, DAY, 2, "event-2", called_off=True))
    assert off.record.departure is None and orders(off, commands.PokeScheduler)


def test_a_date_that_has_moved_is_not_moved_back_by_an_old_announcement() -> None:
    """Events come twice and in any order: of one source only what is newer is heard."""
    first = _announced(DepartureKind.RETIREMENT, DAY)
    record = applied(tell(available(), first))
    record = applied(tell(record, _announced(DepartureKind.RETIREMENT, 9 * DAY, at=60)))
    assert tell(record, first).outcome is EventOutcome.OUTDATED
    off = applied(tell(record, _announced(DepartureKind.RETIREMENT, 9 * DAY, at=90, called_off=True)))
    assert off.departure is None
    for again in (first, _announced(DepartureKind.RETIREMENT, 9 * DAY, at=60)):
        assert tell(off, again).outcome is EventOutcome.OUTDATED
    assert tell(off, _announced(DepartureKind.RETIREMENT, 9 * DAY, at=91)).record.departure is not None


def test_a_call_off_that_overtakes_its_announcement_wins() -> None:
    """Else the instance would be left for what will never come."""
    record = applied(tell(available(), _announced(DepartureKind.MAINTENANCE, DAY, at=60, called_off=True)))
    assert tell(record, _announced(DepartureKind.MAINTENANCE, DAY, at=0)).outcome is EventOutcome.OUTDATED
    assert not record.avoid_reason


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
    assert record.avoid_reason and record.deadline_at == later(ADAPTIVE.rebalance_avoid_s)
    decision = overdue(record)
    assert decision.record.avoid_reason == "" and _told_to_leave(decision) == []
    assert orders(decision, commands.PokeScheduler)


@pytest.mark.parametrize("kind", [DepartureKind.INTERRUPTION, DepartureKind.MAINTENANCE])
def test_a_machine_still_there_long_after_it_was_to_go_is_used_again(kind: DepartureKind) -> None:
    """Who announced it may never say that it was called off."""
    record = applied(tell(claimed(), _announced(kind, 120)))
    assert record.avoid_reason and record.deadline_at == later(120 + ADAPTIVE.rebalance_avoid_s)
    decision = overdue(record)
    assert (decision.record.avoid_reason, decision.record.deadline_at) == ("", None)


def test_an_instance_that_is_left_is_kept_for_nobody() -> None:
    """A reservation without a deadline would keep it from everybody for ever."""
    record = applied(tell(record := checking(), verdict_of(record, CheckOutcome.HEALTHY)))
    assert record.reserved_for == "sft-1"
    left = applied(tell(record, _announced(DepartureKind.INTERRUPTION, 120)))
    assert left.reserved_for == "" and left.deadline_at is not None
    waits = applied(tell(record, _announced(DepartureKind.RETIREMENT, DAY)))
    assert waits.reserved_for == "sft-1" and waits.deadline_at == later(ADAPTIVE.repaired_reservation_s)
    free = overdue(waits).record
    assert free.reserved_for == "" and free.deadline_at == later(DAY - ADAPTIVE.departure_lead_s)
    assert NOW + timedelta(seconds=ADAPTIVE.repaired_reservation_s) < free.deadline_at


def test_what_was_announced_while_it_was_busy_is_acted_on_when_it_works() -> None:
    """It is due the moment it works again."""
    record = applied(tell(checking(), _announced(DepartureKind.RETIREMENT, 60), ON))
    works = applied(tell(record, verdict_of(record, CheckOutcome.HEALTHY), ON))
    assert works.deadline_at is not None and works.deadline_at <= NOW
    assert overdue(works, ON).record.status is S.REPLACING


def test_a_machine_that_has_gone_remembers_no_warning_but_when_each_was_given() -> None:
    """What comes back is another boot, perhaps another host; what is delivered late is about the old one."""
    record = applied(tell(available(), health_report(HealthKind.DAEMON)))
    record = applied(tell(record, _announced(DepartureKind.RETIREMENT, DAY)))
    off = events.MachineSeen(at=later(1), state=Ec2InstanceState.STOPPED)
    gone = applied(tell(record, off, now=later(1)))
    assert gone.avoid_reason == ""
    back = applied(tell(gone, observed(1, container_instance_id="ci-2"), now=later(2)))
    assert tell(back, health_report(HealthKind.DAEMON)).outcome is EventOutcome.OUTDATED
    assert tell(back, _announced(DepartureKind.RETIREMENT, DAY)).outcome is EventOutcome.OUTDATED


def test_the_record_of_announcements_is_bounded() -> None:
    """Every event of AWS Health has a name of its own."""
    record = available()
    for n in range(50):
        called_off = _announced(DepartureKind.MAINTENANCE, DAY, at=n, source=f"event-{n}", called_off=True)
        record = applied(tell(record, called_off))
    assert list(record.announced) == [f"event-{n}" for n in range(42, 50)]
    long = replace(health_report(HealthKind.DAEMON, since=later(99)), sentence="x" * 5_000)
    assert len(applied(tell(record, long)).health[HealthKind.DAEMON].sentence) == 500
