"""GPU Operational Events: what they would have decided, in one sentence, and that nothing is decided by them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from gpu_recovery.core import commands, events
from gpu_recovery.core.gpu_events import (
    EventAttribute,
    EventSeverity,
    GpuEvent,
    GroupAttribute,
    class_by_events,
    comparison,
    named_events,
)
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.health_signals import HealthKind
from gpu_recovery.core.instance.record import IdleCheck, Instance, InstanceStatus
from gpu_recovery.core.state_machine import Decision, EventOutcome
from gpu_recovery.core.xid import XidClass, XidProfile
from gpu_recovery.node_api.report_parser import parse_report

from tests.core.build import NOW, applied, available, checking, later, orders, tell, verdict_of
from tests.core.instance.health_cases import IN_STATUS, health_report

PRIMARY, PROPAGATED = EventAttribute.PRIMARY, EventAttribute.PROPAGATED
NVIDIA = XidProfile.NVIDIA


def event(xid: int | None = None, severity: int = EventSeverity.FATAL, **more: Any) -> GpuEvent:
    return GpuEvent("GPU-0", "GPU-RAS", 0x17, 2, severity, **{"attributes": PRIMARY, "xid": xid, **more})


@pytest.mark.parametrize(
    ("found", "xid_class"),
    [
        ([], XidClass.IGNORE),
        ([event(79)], XidClass.REBOOT),
        ([event(31)], XidClass.APP),
        ([event()], XidClass.DIAG),
        ([event(79, group_attributes=GroupAttribute.SIMULATED)], XidClass.IGNORE),
        ([event(48, group_attributes=GroupAttribute.RECOVERED)], XidClass.WATCH),
        ([event(48, EventSeverity.CORRECTED)], XidClass.WATCH),
        ([event(94, EventSeverity.RECOVERABLE)], XidClass.APP),
        ([event(48, attributes=PROPAGATED)], XidClass.FOLLOW_OTHER),
        ([event(48, attributes=PROPAGATED | PRIMARY)], XidClass.REBOOT),
        ([event(31), event(48, attributes=PROPAGATED)], XidClass.APP),
        ([event(31), event(48, attributes=0)], XidClass.APP),
        ([event(31, attributes=0), event(48, attributes=0)], XidClass.REBOOT),
        ([event(54), event(48)], XidClass.REPLACE),
    ],
)
def test_the_class_of_events(found: list[GpuEvent], xid_class: XidClass) -> None:
    """Cause before echo; recovered and corrected ones are watched, unknown ones are checked."""
    assert class_by_events(found, NVIDIA) is xid_class


@pytest.mark.parametrize(
    ("found", "xids", "sentence"),
    [
        ([event(79)], {79}, "would have decided a health check and a reboot, as the XIDs do"),
        (
            [event(48, group_attributes=GroupAttribute.RECOVERED)],
            set(),
            "would have decided nothing; the XIDs decide a health check and a reboot, and the XIDs count",
        ),
        ([event()], {31}, "would have decided a health check; the XIDs decide nothing, and the XIDs count"),
        ([event(31)], {48}, "would have decided nothing; the XIDs decide a health check and a reboot"),
        ([event(31)], set(), ""),
        ([], set(), ""),
    ],
)
def test_one_sentence_says_what_they_would_have_decided(found: list[GpuEvent], xids: set[int], sentence: str) -> None:
    """The XID of an event is in the kernel log too, so it counts on both sides."""
    said = comparison(found, xids, NVIDIA)
    assert sentence in said and bool(said) is bool(sentence)


def reported(record: Instance, *found: GpuEvent, at: Any = NOW) -> Decision[Instance]:
    return tell(record, events.GpuEventsReported(at=at, events=found), now=at)


@pytest.mark.parametrize("where", [status for status in InstanceStatus if status is not InstanceStatus.GONE])
def test_nothing_is_decided_by_them(where: InstanceStatus) -> None:
    """Even a GPU that is gone changes only the history; the next kernel line decides."""
    record = IN_STATUS[where]()
    decision = reported(record, event(79), event(54))
    assert (decision.record.status, decision.record.reason) == (record.status, record.reason)
    blank = {"history": (), "version": 0, "commands": (), "reads_gpu_events": True}
    assert replace(decision.record, **blank) == replace(record, **blank)
    assert not orders(decision, commands.RunCheck) and not orders(decision, commands.NotifyOperator)
    assert "GPU Operational Events (preview) would have decided" in decision.record.history[-1].reason


def test_the_history_keeps_the_sentence_beside_the_xid_and_the_mail_shows_it() -> None:
    """The XID decided a check; the events call its group recovered."""
    suspect = replace(health_report(HealthKind.NODE_AGENT), sentence="XID 48 on GPU-0")
    record = applied(tell(available(), suspect))
    after = reported(record, event(48, group_attributes=GroupAttribute.RECOVERED)).record
    assert after.status is InstanceStatus.CHECKING
    last = after.history[-1].reason
    assert "decided nothing" in last and "GPU-RAS 0x0017 FATAL primary, group recovered" in last
    assert "XID 48" not in last  # whoever searches the history for XIDs finds those of the kernel log only


def test_a_storm_leaves_one_entry() -> None:
    """Decisions stay in the history."""
    record = applied(reported(available(), event(79)))
    assert reported(record, event(79), event(79), at=later(30)).outcome is EventOutcome.IGNORED
    assert len(reported(record, event(31), event(54), at=later(30)).record.history) == len(record.history) + 1
    assert reported(record, event(79), at=later(601)).outcome is EventOutcome.APPLIED
    assert reported(record, event(31)).outcome is EventOutcome.IGNORED


def test_many_events_are_named_in_a_few_words() -> None:
    """The entry of the history stays short."""
    said = named_events([replace(event(), code=number) for number in range(50)])
    assert said.endswith(" and 47 more") and len(said) < 150


@pytest.mark.parametrize("malformed", [7, [7], [{"module": 7}], [{}], [{"module": "GPU-RAS", "code": -1}]])
def test_a_malformed_preview_costs_no_report(malformed: Any) -> None:
    """The XIDs of the same report count."""
    body = {"boot_id": "4d8e8b0a-37a5-4c13-9f1c-0d2f5a1f9b11", "uptime_s": 60, "sequence": 1, "running": []}
    report = parse_report("i-1", {**body, "xids": [{"xid": 79}], "gpu_events": malformed})
    assert report.gpu_events == () and report.xids[0].xid == 79


def test_the_messages_of_an_incident_have_the_sentence() -> None:
    """As one of the last decisions about the instance."""
    record = applied(reported(available(), event(79)))
    told = tell(record, events.QuarantineRequested(at=NOW, by="ada"))
    (notice,) = orders(told, commands.NotifyOperator)
    assert "GPU Operational Events (preview) would have decided a health check and a reboot" in notice.body


# -- an incident without events ----------------------------------------------------------------------------------------


def after_check(outcome: CheckOutcome, **fields: Any) -> Instance:
    """The instance after a check of a failed job has ended so."""
    record = checking(**fields)
    return applied(tell(record, verdict_of(record, outcome), now=later(60)))


def entries(record: Instance) -> list[str]:
    """The entries about GPU Operational Events."""
    return [entry.reason for entry in record.history if entry.event == "GpuEventsReported"]


@pytest.mark.parametrize("outcome", CheckOutcome)
def test_an_incident_without_events_says_so_if_they_are_read(outcome: CheckOutcome) -> None:
    """Only where the check decided something. Without such an agent nothing is said."""
    silent, able = after_check(outcome), after_check(outcome, reads_gpu_events=True)
    assert entries(silent) == [] and able.status is silent.status and able.reason == silent.reason
    said = (
        f"no GPU Operational Event (preview) was read: the events would have decided nothing; the check found {outcome}"
    )
    assert entries(able) == ([said] if outcome in (CheckOutcome.REBOOT, CheckOutcome.REPLACE) else [])
    assert able.history[-1].reason == able.reason  # the decision itself stays the last entry


def test_an_incident_with_events_does_not_say_that_there_were_none() -> None:
    """The events may precede the check, as those of the same occurrence as an XID do. Events of another day do not."""
    record = checking(reads_gpu_events=True)
    told = applied(reported(record, event(79), at=later(20)))
    found = applied(tell(told, verdict_of(told, CheckOutcome.REBOOT), now=later(60)))
    assert len(entries(found)) == 1 and "would have decided a health check and a reboot" in entries(found)[0]
    long_before = replace(told.history[-1], at=NOW - timedelta(days=1))
    record = replace(record, history=(*record.history, long_before))
    found = applied(tell(record, verdict_of(record, CheckOutcome.REBOOT), now=later(60)))
    assert [entry.startswith("no GPU Operational Event") for entry in entries(found)] == [False, True]


def test_an_idle_check_is_no_incident() -> None:
    """It finds faults before a job does. No event was expected then."""
    record = checking(reads_gpu_events=True)
    assert record.check is not None
    record = replace(record, check=replace(record.check, idle=IdleCheck(NOW)))
    assert entries(applied(tell(record, verdict_of(record, CheckOutcome.REBOOT), now=later(60)))) == []


def test_an_event_that_is_delivered_again_much_later_leaves_no_further_entry() -> None:
    """The time of the event counts. A new event of the same kind, as late, is another occurrence."""
    first = applied(tell(available(), told := events.GpuEventsReported(at=NOW, events=(event(79),)), now=NOW))
    assert tell(first, told, now=later(3_600)).outcome is EventOutcome.IGNORED
    assert len(entries(applied(reported(first, event(79), at=later(3_600))))) == 2


def test_the_record_knows_whether_the_agent_reads_events() -> None:
    """A report that says it again changes nothing, and a report without events leaves no entry."""
    on = applied(reported(available()))
    assert on.reads_gpu_events and entries(on) == []
    assert reported(on).outcome is EventOutcome.IGNORED
    off = applied(tell(on, events.GpuEventsReported(at=NOW, are_read=False)))
    assert not off.reads_gpu_events and off.history == on.history
