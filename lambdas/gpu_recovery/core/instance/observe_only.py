"""Observe-only: a step is computed in full, recorded and reported, but not carried out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpu_recovery.core import commands, events
from gpu_recovery.core.instance.effects import repair_ended
from gpu_recovery.core.instance.interruptions import next_wake_after_now
from gpu_recovery.core.instance.record import IN_USE, Instance, InstanceStatus
from gpu_recovery.core.notifications import instances
from gpu_recovery.core.policy import duration
from gpu_recovery.core.state_machine import DecisionContext, Step

_OUT_OF_USE = (InstanceStatus.RESETTING, InstanceStatus.REBOOTING, InstanceStatus.REPLACING, InstanceStatus.QUARANTINED)
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
"""Fields that describe the instance. They change in observe-only mode too."""
_DESTRUCTIVE = (
    commands.DrainInstance,
    commands.ResetGpus,
    commands.RebootInstance,
    commands.ReplaceInstance,
    commands.StartInstance,
    commands.DeregisterInstance,
)
"""Commands that are never given in observe-only mode."""
_TO_OTHERS = (commands.ReportCheck, commands.PokeScheduler, commands.StopCheck)
_NOT_RECORDED = (commands.NotifyOperator, commands.PublishEvent, *_TO_OTHERS)


def withheld(instance: Instance, event: events.InstanceEvent, step: Step, context: DecisionContext) -> Step:
    """Return the step that is carried out in observe-only mode in place of `step`.

    A step that would repair or quarantine a working instance is only recorded and reported. So is a check that no job
    asked for. Any other step loses the commands that drain, reboot, replace, start or deregister the instance. The
    requests of an operator are carried out in full. An instance that was out of use before stays out of use.
    """
    if isinstance(event, events.QuarantineRequested | events.ReleaseRequested):
        return step
    asked = isinstance(event, events.CheckRequested)
    checks = step.status is InstanceStatus.CHECKING and instance.status is InstanceStatus.AVAILABLE and not asked
    if instance.status not in IN_USE or not (checks or step.status in _OUT_OF_USE):
        return _untouched(instance, step)
    orders = [type(command).__name__ for command in step.commands if not isinstance(command, _NOT_RECORDED)]
    would = f"it would be {step.status}: {step.reason}; the orders would be {', '.join(orders) or 'none'}"
    facts = {key: value for key, value in step.changes.items() if key in _FACTS}
    changes: dict[str, Any] = {**facts, "check": None, "need": None, "held": None, "also_waiting": ()}
    if instance.status is InstanceStatus.AVAILABLE:
        changes |= _with_next_wake(replace(instance, **facts), context)
    ended = repair_ended(instance, False, f"{instance.instance_id}: observe-only", context.now)
    reports = (*(_without_repair(command) for command in step.commands if isinstance(command, _TO_OTHERS)), *ended)
    return Step(
        InstanceStatus.AVAILABLE,
        f"observe-only: {would}",
        changes,
        (*reports, instances.would_have_repaired(instance, would)),
    )


def _untouched(instance: Instance, step: Step) -> Step:
    """Return `step` without its commands that touch the instance.

    If a drain is withheld, the instance is not marked as drained, and so it is not activated later. The drain of an
    operator's quarantine is carried out, also under a new registration.
    """
    standing = instance.standing_quarantine
    by_operator = standing is not None and standing.by
    kept = (commands.DrainInstance,) if by_operator else ()
    remaining = tuple(c for c in step.commands if isinstance(c, kept) or not isinstance(c, _DESTRUCTIVE))
    drained = not by_operator and any(isinstance(command, commands.DrainInstance) for command in step.commands)
    changes = {**step.changes, "drained": instance.drained} if drained else step.changes
    return Step(step.status, step.reason, changes, remaining)


def _with_next_wake(instance: Instance, context: DecisionContext) -> dict[str, Any]:
    """Return the changes for the next deadline of a working instance; everything due by now was withheld."""
    reserved = (
        not instance.reserved_for or instance.status_at + duration(context.policy.repaired_reservation_s) > context.now
    )
    return {
        "reserved_for": instance.reserved_for if reserved else "",
        "deadline_at": next_wake_after_now(instance, context),
    }


def _without_repair(order: Any) -> Any:
    """Return the report of a check without the repair that it announces; other commands as they are."""
    if not isinstance(order, commands.ReportCheck):
        return order
    return commands.ReportCheck(order.job_id, order.attempt, order.outcome, order.summary, False)
