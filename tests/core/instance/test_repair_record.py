"""What the history of an instance says about the line on its machine: who ordered the repair, and why."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gpu_recovery.core import events
from gpu_recovery.core.instance.record import Instance, InstanceStatus
from gpu_recovery.core.repair_record import LINE_MAX, TAG_VALUE_MAX, repair_line, tag_value
from gpu_recovery.core.state_machine import EventOutcome

from tests.core.build import NOW, applied, available, rebooting, tell, verifying

LINE = "gpu-recovery ordered the reboot of i-1"
OLD, NEW = "boot-old", "boot-new"


def announced(
    record: Instance, asked: bool = True, tag: str = "written", epoch: int | None = None
) -> events.RepairAnnounced:
    """The repair was ordered."""
    number = record.epoch if epoch is None else epoch
    return events.RepairAnnounced(at=NOW, epoch=number, line=LINE, asked=asked, tag=tag)


def found(record: Instance, written: str, boot_id: str) -> events.RepairRecordFound:
    """The agent reports the line."""
    return events.RepairRecordFound(at=NOW, epoch=record.epoch, line=LINE, written=written, boot_id=boot_id)


def under_repair() -> Instance:
    """An instance whose reboot was ordered, with the boot that the reboot ends."""
    record = rebooting()
    assert record.reboot is not None
    return replace(record, reboot=replace(record.reboot, boot_id=OLD))


def last(record: Instance) -> str:
    """The newest sentence of the history."""
    return record.history[-1].reason


@pytest.mark.parametrize(
    ("asked", "tag", "sentence"),
    [
        (True, "written", "its agent was asked to write who ordered this; its tag says it"),
        (False, "", "it has no agent to write who ordered this"),
        (True, "AccessDenied", "its agent was asked to write who ordered this; no tag was written: AccessDenied"),
    ],
)
def test_the_history_says_who_was_asked_to_keep_the_line(asked: bool, tag: str, sentence: str) -> None:
    """A failure is a part of the history, and changes neither the status nor its reason."""
    before = under_repair()
    after = applied(tell(before, announced(before, asked, tag)))
    assert last(after) == sentence
    assert (after.status, after.reason, after.deadline_at) == (before.status, before.reason, before.deadline_at)


def test_the_line_is_found_again_after_the_boot() -> None:
    """Written by an agent that had a report before the reboot, and found by the agent of the next boot."""
    record = under_repair()
    record = applied(tell(record, announced(record)))
    record = applied(tell(record, found(record, OLD, OLD)))
    assert last(record) == f"written by its agent under the boot that the repair began in: {LINE}"
    verified = replace(record, status=InstanceStatus.VERIFYING, reboot=None)
    verified = applied(tell(verified, found(record, OLD, NEW)))
    assert last(verified) == f"found again after the boot, written before it: {LINE}"
    assert tell(verified, found(record, OLD, NEW)).outcome is EventOutcome.IGNORED


def test_a_line_that_came_too_late_says_so() -> None:
    """The agent had no report before the reboot: it writes the line after the boot."""
    record = under_repair()
    record = applied(tell(record, announced(record)))
    record = applied(tell(record, found(record, NEW, NEW)))
    assert last(record) == f"written on the machine after the boot, because its agent heard of it only then: {LINE}"


def test_a_line_without_an_announcement_counts_too() -> None:
    """The function that ordered the repair was cut off after the agent had its order. The announcement comes late."""
    record = under_repair()
    record = applied(tell(record, found(record, OLD, NEW)))
    assert last(record) == f"found again after the boot, written before it: {LINE}"
    record = applied(tell(record, announced(record)))
    assert record.repair_record is not None and record.repair_record.is_found
    assert tell(record, found(record, OLD, NEW)).outcome is EventOutcome.IGNORED


def test_news_of_an_earlier_repair_changes_nothing() -> None:
    """An agent finds the line of the last repair at each of its starts."""
    record = under_repair()
    assert tell(record, announced(record, epoch=record.epoch - 1)).outcome is EventOutcome.IGNORED
    later = replace(applied(tell(record, announced(record))), epoch=record.epoch)
    old = replace(found(record, OLD, NEW), epoch=record.epoch - 1)
    assert tell(later, old).outcome is EventOutcome.IGNORED


@pytest.mark.parametrize("record", [available(), verifying()], ids=["available", "verifying"])
def test_the_status_stays_wherever_the_instance_is(record: Instance) -> None:
    """The agent may report days later."""
    after = applied(tell(record, found(record, OLD, NEW)))
    assert (after.status, after.reason) == (record.status, record.reason)


def test_the_line_has_incident_evidence_and_decision_and_no_secret() -> None:
    """On one line, within its length. A tag has only the characters that EC2 allows."""
    line = repair_line("i-1", "reboot", 5, "i-1/12", "XID 79 on GPU 3", "2 failures; rebooting", NOW)
    for part in (
        "the reboot of i-1",
        "repair 5",
        "incident i-1/12",
        "evidence: XID 79 on GPU 3",
        "decision: 2 failures",
    ):
        assert part in line
    assert "evidence" not in repair_line("i-1", "stop", 5, "", "XID 79", "XID 79; rebooting", NOW)
    secret = repair_line("i-1", "reboot", 5, "", "login password=0123456789abcdef\n" * 40, "x", NOW)
    assert "0123456789abcdef" not in secret and "\n" not in secret and len(secret) <= LINE_MAX
    assert tag_value("a; b 'c' (d), é\t" * 60).startswith("a b c d a b") and len(tag_value("x" * 900)) == TAG_VALUE_MAX
