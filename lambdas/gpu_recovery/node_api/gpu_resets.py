"""Orders to reset the GPUs of an instance: sent while they apply, and answered by the agent's reports."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_recovery.core import events
from gpu_recovery.core.fleet import repair_withheld_reason
from gpu_recovery.core.heartbeat import AgentCommand, AgentCommandKind, AgentReport, Heartbeat
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.recovery import Recovery


@dataclass
class GpuResets:
    """The orders of one instance are in its heartbeat; its record decides whether an order still applies."""

    recovery: Recovery

    def ended(self, before: Heartbeat | None, report: AgentReport) -> events.ResetEnded | None:
        """Return the event about the end of an ordered reset; None if the report tells of none."""
        order = before.orders.get(report.reset.order_id) if before is not None and report.reset is not None else None
        if report.reset is None or order is None or order.kind is not AgentCommandKind.RESET:
            return None
        return events.ResetEnded(
            at=self.recovery.clock(), epoch=order.attempt, done=report.reset.done, sentence=report.reset.sentence
        )

    def due(self, before: Heartbeat | None) -> tuple[AgentCommand, ...]:
        """Return the order that applies now, and remove every other order to reset the GPUs.

        The records of the instance and of the fleet are read for each response with an order. So no agent is told to
        reset GPUs that are in use again, and a pause of repairs holds back a reset that has not begun.
        """
        orders = [order for order in _orders(before) if order.kind is AgentCommandKind.RESET]
        if before is None or not orders:
            return ()
        instance = self.recovery.store.load_instance(before.instance_id)
        resetting = instance is not None and instance.status is InstanceStatus.RESETTING
        due = tuple(order for order in orders if instance is not None and resetting and order.attempt == instance.epoch)
        if void := [order.order_id for order in orders if order not in due]:
            self.recovery.store.remove_agent_commands(before.instance_id, void)
        if not due or repair_withheld_reason(
            self.recovery.store.load_fleet(), before.instance_id, self.recovery.policy
        ):
            return ()
        return due


def _orders(before: Heartbeat | None) -> tuple[AgentCommand, ...]:
    return tuple(before.orders.values()) if before is not None else ()
