"""Lines about a repair: the order to the agent to write the line, and the agent's report that its machine has it."""

from __future__ import annotations

from datetime import datetime

from gpu_recovery.core import events
from gpu_recovery.core.heartbeat import AgentCommand, AgentCommandKind, AgentReport, Heartbeat
from gpu_recovery.core.repair_record import ORDER_ID
from gpu_recovery.ports.store import Store


def orders_to_record(before: Heartbeat | None, report: AgentReport) -> tuple[AgentCommand, ...]:
    """Return the order to write a line, unless the report says that the machine has the line."""
    orders = before.orders.values() if before is not None else ()
    done = report.recorded.epoch if report.recorded is not None else None
    return tuple(order for order in orders if order.kind is AgentCommandKind.RECORD and order.attempt != done)


def record_found(
    store: Store, before: Heartbeat | None, report: AgentReport, now: datetime
) -> events.RepairRecordFound | None:
    """Return the event of a line that the agent has written or found, and withdraw its order; None without a line.

    An agent that never heard of an order may still have the line of an earlier repair.
    """
    found = report.recorded
    if found is None or before is None or not report.boot_id:
        return None
    order = before.orders.get(ORDER_ID)
    if order is not None and order.attempt == found.epoch:
        store.remove_agent_commands(report.instance_id, [ORDER_ID])
    return events.RepairRecordFound(
        at=now, epoch=found.epoch, line=found.line, written=found.boot_id, boot_id=report.boot_id
    )
