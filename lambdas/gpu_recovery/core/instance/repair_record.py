"""Repair record of an instance: where the line about its last repair is, as its history shows it.

Both events leave the status and its reason as they are. They add an entry to the history, and `gpu-recovery explain`
shows the entry in the timeline of the job.
"""

from __future__ import annotations

from dataclasses import replace

from gpu_recovery.core import events
from gpu_recovery.core.instance.record import Instance
from gpu_recovery.core.repair_record import RepairRecord
from gpu_recovery.core.state_machine import DecisionContext, HistoryEntry, Ignore, Step, bounded_history

WRITTEN = "written"
"""`RepairRecord.tag` of a tag that was written."""


def repair_announced(instance: Instance, event: events.RepairAnnounced, context: DecisionContext) -> Step | Ignore:
    """Record where the line of an ordered repair goes: whether the agent was asked, and the tag."""
    if instance.epoch != event.epoch:
        return Ignore("another repair has begun since")
    known = instance.repair_record
    if known is not None and known.epoch == event.epoch and known.asked == event.asked and known.tag == event.tag:
        return Ignore("it is known already")
    boot_id = instance.reboot.boot_id if instance.reboot is not None else instance.boot_id
    agent = "its agent was asked to write who ordered this"
    if event.error:
        agent = f"its agent could not be asked to write who ordered this: {event.error}"
    elif not event.asked:
        agent = "it has no agent to write who ordered this"
    tag = "" if not event.tag else "; its tag says it" if event.tag == WRITTEN else f"; no tag was written: {event.tag}"
    record = RepairRecord(event.epoch, event.line, boot_id or "", event.asked, event.tag)
    if known is not None and known.epoch == event.epoch:  # the function that ordered the repair was cut off
        record = replace(record, written=known.written, is_found=known.is_found)
    return _with_entry(instance, event, f"{agent}{tag}", record, context)


def record_found(instance: Instance, event: events.RepairRecordFound, context: DecisionContext) -> Step | Ignore:
    """Record that the agent has written the line, or has found it again after the boot."""
    known = instance.repair_record
    if known is not None and known.epoch > event.epoch:
        return Ignore("a later repair has begun since")
    if known is None or known.epoch != event.epoch:
        known = RepairRecord(event.epoch, event.line)  # the function that ordered the repair was cut off
    is_found = event.written != event.boot_id
    if known.written == event.written and known.is_found >= is_found:
        return Ignore("it is known already")
    if is_found:
        how = "found again after the boot, written before it"
    elif event.boot_id == known.boot_id:
        how = "written by its agent under the boot that the repair began in"
    else:
        how = "written on the machine after the boot, because its agent heard of it only then"
    record = replace(known, line=event.line, written=event.written, is_found=is_found)
    return _with_entry(instance, event, f"{how}: {event.line}", record, context)


def _with_entry(
    instance: Instance, event: events.InstanceEvent, sentence: str, record: RepairRecord, context: DecisionContext
) -> Step:
    """Return the step that saves the record, with an entry in the history. The status keeps its reason."""
    status = instance.status
    entry = HistoryEntry(context.now, status, status, type(event).__name__, 0, sentence)
    history = bounded_history(instance.history, entry, context.policy.history_max)
    return Step(status, instance.reason, {"repair_record": record, "history": history})
