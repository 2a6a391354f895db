"""Observe-only: what the machine would have done is worked out to the last order, recorded, told, and not done."""

from __future__ import annotations

from typing import Any

from .. import commands, events, notice
from ..machine import Step
from .record import Instance, InstanceStatus

_OUT_OF_USE = (InstanceStatus.REBOOTING, InstanceStatus.REPLACING, InstanceStatus.QUARANTINED)
_FACTS = ("boot_id", "booted_at", "health", "departure", "claims", "container_instance_id", "past_registrations")
_SAID = (commands.ReportCheck, commands.PokeScheduler, commands.StopCheck)
_UNTOLD = (commands.NotifyOperator, commands.PublishEvent, *_SAID)


def withheld(instance: Instance, event: events.InstanceEvent, step: Step) -> Step:
    """`step`, or in place of one that takes the instance out of use its record: the status, the orders, the reason.

    What a person asks for is done all the same.
    """
    person = isinstance(event, events.QuarantineRequested | events.ReleaseRequested)
    if person or step.status not in _OUT_OF_USE or instance.status in _OUT_OF_USE:
        kept = tuple(one for one in step.commands if not isinstance(one, commands.DeregisterInstance))
        return Step(step.status, step.reason, step.changes, kept)
    orders = [type(one).__name__ for one in step.commands if not isinstance(one, _UNTOLD)]
    would = f"it would be {step.status}: {step.reason}; the orders would be {', '.join(orders)}"
    changes: dict[str, Any] = {key: value for key, value in step.changes.items() if key in _FACTS}
    said = tuple(_unrepaired(one) for one in step.commands if isinstance(one, _SAID))
    return Step(
        InstanceStatus.AVAILABLE, f"observe-only: {would}", {**changes, "check": None, "need": None, "held": None},
        (*said, notice.would_have_repaired(instance, would)),
    )  # fmt: skip


def _unrepaired(order: Any) -> Any:
    """A check's report, without the repair that it would have announced."""
    if not isinstance(order, commands.ReportCheck):
        return order
    return commands.ReportCheck(order.job_id, order.attempt, order.outcome, order.summary, False)
