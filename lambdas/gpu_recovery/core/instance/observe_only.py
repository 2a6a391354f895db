"""Observe-only: what the machine would have done is worked out to the last order, recorded, told, and not done."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpu_recovery.core import commands, events
from gpu_recovery.core.instance.effects import repair_ended
from gpu_recovery.core.instance.interruptions import next_wake_after_now
from gpu_recovery.core.instance.record import IN_USE, Instance, InstanceStatus
from gpu_recovery.core.notifications import instances
from gpu_recovery.core.policy import within
from gpu_recovery.core.state_machine import DecisionContext, Step

_OUT_OF_USE = (InstanceStatus.REBOOTING, InstanceStatus.REPLACING, InstanceStatus.QUARANTINED)
_FACTS = (
    "boot_id",
    "booted_at",
    "health",
    "departure",
    "announced",
    "claims",
    "ended_for",
    "silent_since",
    "heard_at",
    "boot_heard_at",
)
_DESTRUCTIVE = (
    commands.DrainInstance,
    commands.RebootInstance,
    commands.ReplaceInstance,
    commands.StartInstance,
    commands.DeregisterInstance,
)
"""Orders that are never given."""
_TO_OTHERS = (commands.ReportCheck, commands.PokeScheduler, commands.StopCheck)
_NOT_RECORDED = (commands.NotifyOperator, commands.PublishEvent, *_TO_OTHERS)


def withheld(instance: Instance, event: events.InstanceEvent, step: Step, given: DecisionContext) -> Step:
    """`step`, or in place of one that takes the instance out of use its record: the status, the orders, the reason.

    What a person asks for is done all the same. An instance that was out of use before, because a person or another
    policy wanted it so, does not come into use by being left alone.
    """
    if isinstance(event, events.QuarantineRequested | events.ReleaseRequested):
        return step
    asked = isinstance(event, events.CheckRequested)
    checks = step.status is InstanceStatus.CHECKING and instance.status is InstanceStatus.AVAILABLE and not asked
    if instance.status not in IN_USE or not (checks or step.status in _OUT_OF_USE):
        return _untouched(instance, step)
    orders = [type(one).__name__ for one in step.commands if not isinstance(one, _NOT_RECORDED)]
    would = f"it would be {step.status}: {step.reason}; the orders would be {', '.join(orders) or 'none'}"
    facts = {key: value for key, value in step.changes.items() if key in _FACTS}
    changes: dict[str, Any] = {**facts, "check": None, "need": None, "held": None, "also_waiting": ()}
    if instance.status is InstanceStatus.AVAILABLE:
        changes |= _with_next_wake(replace(instance, **facts), given)
    ended = repair_ended(instance, False, f"{instance.instance_id}: observe-only", given.now)
    said = (*(_without_repair(one) for one in step.commands if isinstance(one, _TO_OTHERS)), *ended)
    return Step(
        InstanceStatus.AVAILABLE,
        f"observe-only: {would}",
        changes,
        (*said, instances.would_have_repaired(instance, would)),
    )


def _untouched(instance: Instance, step: Step) -> Step:
    """`step` without its orders to touch the machine; not drained, it is none of ours to activate."""
    kept = tuple(one for one in step.commands if not isinstance(one, _DESTRUCTIVE))
    drained = any(isinstance(one, commands.DrainInstance) for one in step.commands)
    changes = {**step.changes, "drained": instance.drained} if drained else step.changes
    return Step(step.status, step.reason, changes, kept)


def _with_next_wake(instance: Instance, given: DecisionContext) -> dict[str, Any]:
    """When an instance that works on is thought of next: what was due by now has been withheld, once."""
    kept = not instance.reserved_for or instance.status_at + within(given.policy.repaired_reservation_s) > given.now
    return {"reserved_for": instance.reserved_for if kept else "", "deadline_at": next_wake_after_now(instance, given)}


def _without_repair(order: Any) -> Any:
    """A check's report, without the repair that it would have announced."""
    if not isinstance(order, commands.ReportCheck):
        return order
    return commands.ReportCheck(order.job_id, order.attempt, order.outcome, order.summary, False)
