"""What operators hear of an instance: derived from how its record moves, in one place, so that no way is forgotten.

An incident opens when the instance waits for something that a person should know of: it is quarantined, its repair is
held back for a reason of its own, its host will be retired or rebooted, or a watcher finds it impaired while it works.
The record keeps the incident's id until the instance works again with nothing said against it, or is gone; then the
same thread says so.

When many instances look bad at once the fleet's thread speaks for them. An instance that the brakes hold back, one that
is blamed while the breaker is open, and one blamed beyond the repair budget send no message of their own; whoever waits
for a person still is in the next day's reminder.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpu_recovery.core import commands, events
from gpu_recovery.core.fleet import Fleet, budget, repair_blocked_reason
from gpu_recovery.core.health_signals import DepartureKind, HealthStatus
from gpu_recovery.core.instance.deadlines import deadlines
from gpu_recovery.core.instance.escalation import claimants
from gpu_recovery.core.instance.interruptions import evacuation_at
from gpu_recovery.core.instance.record import Instance, InstanceStatus, Interruption
from gpu_recovery.core.notifications import instances
from gpu_recovery.core.notifications.template import Phase
from gpu_recovery.core.state_machine import DecisionContext, Step, replace_fields

_ANNOUNCED = (DepartureKind.MAINTENANCE, DepartureKind.RETIREMENT)
"""The departures that a person can do something about: an interruption comes in two minutes, the others never may."""


def with_notifications(
    before: Instance,
    after: Instance,
    step: Step,
    event: events.InstanceEvent,
    given: DecisionContext,
    fleet: Fleet | None,
) -> Step:
    """`step`, with the messages that it calls for and the incident they belong to.

    after: `before` with the step's status, reason and changes. fleet: the brakes after it.
    """
    after = _with_deadline(before, after, step, given)
    if after.status is InstanceStatus.GONE:
        return _over(before, step, instances.gone) if before.incident_id else step
    incident_id = before.incident_id or f"{before.instance_id}/{before.version + 1}"
    told: list[commands.NotifyOperator] = []
    if _is_announced(after.departure) and after.departure != before.departure and after.departure is not None:
        replaces = given.policy.replace
        at = evacuation_at(after.departure, given)
        told.append(instances.interruption_announced(before, incident_id, after.departure, at, replaces))
    if after.status is InstanceStatus.QUARANTINED:
        told += _of_quarantine(before, after, incident_id, event, given, fleet)
    elif after.status is InstanceStatus.AVAILABLE:
        if new := _impaired(after) - (_impaired(before) if before.incident_id else frozenset()):
            told.append(instances.suspected(before, incident_id, _sentence(after, new)))
        elif before.incident_id and not told and not _impaired(after) and not _is_leaving(after.departure):
            return _over(before, step, instances.back_in_service)
    orders: tuple[Any, ...] = tuple(told)
    if _now_needs_operator(before, after):
        data = {
            "instance_id": before.instance_id,
            "reason": after.reason,
            "epoch": after.epoch,
            "incident_id": incident_id if told else before.incident_id or None,
        }
        orders = (*orders, commands.PublishEvent("Operator Action Required", data))
    if not orders:
        return step
    changes = {**step.changes, "incident_id": incident_id} if told else step.changes
    return replace(step, changes=changes, commands=(*step.commands, *_in_order(told), *orders[len(told) :]))


def _with_deadline(before: Instance, after: Instance, step: Step, given: DecisionContext) -> Instance:
    if "deadline_at" in step.changes or step.status == before.status:
        return after
    return replace_fields(after, {"deadline_at": deadlines(after, given)[0]})


def _over(before: Instance, step: Step, word: Any) -> Step:
    return replace(
        step, changes={**step.changes, "incident_id": ""}, commands=(*step.commands, word(before, step.reason))
    )


def _in_order(told: list[commands.NotifyOperator]) -> list[commands.NotifyOperator]:
    """Of two messages at once the second belongs to the thread that the first has opened."""
    return [one if n == 0 else replace(one, phase=Phase.ESCALATED) for n, one in enumerate(told)]


# -- quarantine --------------------------------------------------------------------------------------------------------


def _now_needs_operator(before: Instance, after: Instance) -> bool:
    return after.needs_operator and not before.needs_operator


def _of_quarantine(
    before: Instance,
    after: Instance,
    incident_id: str,
    event: events.InstanceEvent,
    given: DecisionContext,
    fleet: Fleet | None,
) -> list[commands.NotifyOperator]:
    if after.held is not None:
        # What begins and is held back again, the machine being looked at once more, has been told.
        if before.held is not None or _is_blocked_by_fleet(after, given, fleet):
            return []
        return [instances.repair_held(before, incident_id, after.reason, after.deadline_at)]
    if isinstance(event, events.QuarantineRequested):
        if not _now_needs_operator(before, after):
            return []
        return [instances.withdrawn(before, incident_id, after.reason, after.deadline_at)]
    is_reminder = isinstance(event, events.InstanceDeadlineReached)
    if not (_now_needs_operator(before, after) or is_reminder) or _is_covered_by_fleet(before, after, given, fleet):
        return []
    return [instances.quarantined(before, incident_id, after.reason, after.deadline_at)]


def _is_blocked_by_fleet(after: Instance, given: DecisionContext, fleet: Fleet | None) -> bool:
    """Whether nothing but the fleet's brakes holds the repair back."""
    need = after.need
    if fleet is None or need is None or claimants(after, need):
        return False
    # The cap of replacements is left out: new machines that are bad, too, are somebody's to look at.
    return bool(repair_blocked_reason(fleet, after.instance_id, given.policy, given.now))


def _is_covered_by_fleet(before: Instance, after: Instance, given: DecisionContext, fleet: Fleet | None) -> bool:
    """Whether so many instances look bad that the message about them all is enough."""
    if fleet is None:
        return False
    blamed_now = after.blamed_at is not None and after.blamed_at != before.blamed_at
    held_till_now = before.held is not None and fleet.pause is not None
    beyond_budget = blamed_now and len(fleet.blamed) > budget(fleet, given.policy)
    return fleet.opened_at is not None or held_till_now or beyond_budget


# -- warnings ----------------------------------------------------------------------------------------------------------


def _is_announced(departure: Interruption | None) -> bool:
    return departure is not None and departure.kind in _ANNOUNCED


def _is_leaving(departure: Interruption | None) -> bool:
    return departure is not None and departure.kind is not DepartureKind.REBALANCE


def _impaired(instance: Instance) -> frozenset[str]:
    return frozenset(kind for kind, one in instance.health.items() if one.status is HealthStatus.IMPAIRED)


def _sentence(instance: Instance, kinds: frozenset[str]) -> str:
    words = [(kind, instance.health[kind]) for kind in sorted(kinds)]
    return "; ".join(f"{kind} is {one.status}" + (f": {one.sentence}" if one.sentence else "") for kind, one in words)
