"""Notifications about an instance, derived in one place from the changes of its record.

An incident opens when the instance waits for something that an operator should know: it is quarantined, its repair is
held for a reason of its own, its host will be retired or rebooted, or its registration ended under running ranks. It
also opens when a health source reports a working instance or its MPS daemon as impaired, and when a repair begins for
which no job waits: its reboot and its return are one thread. If several such repairs begin at once, one message of the
fleet names them all. The record saves the incident's id until the instance works again without a report against it, or
is gone. Then the same thread says so.

When many instances are suspected at once, the notification of the fleet replaces theirs. No notification
is sent for an instance that only the fleet limits block, that is found faulty while the circuit breaker is open, or
beyond the repair budget. An instance that still needs an operator a day later is in the daily reminder.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpu_recovery.core import commands, events
from gpu_recovery.core.fleet import Fleet, budget, has_many_repairs, repair_blocked_reason
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.health_signals import DepartureKind, HealthKind
from gpu_recovery.core.instance.deadlines import deadlines
from gpu_recovery.core.instance.escalation import LEVEL_NAMES, claimants
from gpu_recovery.core.instance.health_reports import is_about_mps
from gpu_recovery.core.instance.interruptions import evacuation_at
from gpu_recovery.core.instance.record import (
    BEING_REPAIRED,
    IN_REPAIR,
    Instance,
    InstanceStatus,
    Interruption,
    RepairLevel,
)
from gpu_recovery.core.notifications import fleet as fleet_messages
from gpu_recovery.core.notifications import instances
from gpu_recovery.core.notifications.template import Phase
from gpu_recovery.core.state_machine import DecisionContext, Step, replace_fields

_ANNOUNCED = (DepartureKind.MAINTENANCE, DepartureKind.RETIREMENT)
"""Interruptions that an operator can act on: a Spot interruption comes within two minutes, a rebalance may
never come."""

_REPAIRS = {
    InstanceStatus.RESETTING: LEVEL_NAMES[RepairLevel.RESET],
    InstanceStatus.REBOOTING: LEVEL_NAMES[RepairLevel.REBOOT],
    InstanceStatus.REPLACING: LEVEL_NAMES[RepairLevel.REPLACE],
}
"""Names of the repairs under way in sentences."""


def with_notifications(
    before: Instance,
    after: Instance,
    step: Step,
    event: events.InstanceEvent,
    context: DecisionContext,
    fleet: Fleet | None,
) -> Step:
    """Return `step` with the notifications that it calls for and their incident.

    Args:
        after: `before` with the step's status, reason and changes.
        fleet: the fleet's record after the step.
    """
    after = _with_deadline(before, after, step, context)
    if after.status is InstanceStatus.GONE:
        return (
            _over(before, step, instances.gone, quarantined=after.quarantine is not None)
            if before.incident_id
            else step
        )
    incident_id = before.incident_id or f"{before.instance_id}/{before.version + 1}"
    notices: list[commands.NotifyOperator] = []
    if _is_announced(after.departure) and after.departure != before.departure and after.departure is not None:
        replaces = context.policy.replace
        at = evacuation_at(after.departure, context)
        notices.append(instances.interruption_announced(before, incident_id, after.departure, at, replaces))
    asked = isinstance(event, events.RepairRequested) and before.orphaned_ranks and after.ended_for != before.ended_for
    if asked and not context.policy.observe_only:  # else the message of what would have been done says it
        held = after.status is not InstanceStatus.REBOOTING
        recovers = not context.policy.diagnose_exit_code_1_only
        notices.append(
            instances.deregistered(
                before, incident_id, after.reason, held, recovers, needs_operator=after.needs_operator
            )
        )
    if after.status is InstanceStatus.QUARANTINED:
        notices += _of_quarantine(before, after, incident_id, event, context, fleet)
    elif begins_idle_repair(before, after) and not _is_covered_by_fleet(before, after, context, fleet):
        if fleet is None or not has_many_repairs(fleet, context.policy, context.now):
            repair = _REPAIRS[after.status]
            notices.append(instances.repair_begun(before, incident_id, after.reason, after.deadline_at, repair))
        elif context.fleet is not None and fleet.repairs_reported_at != context.fleet.repairs_reported_at:
            told = fleet_messages.idle_repairs(fleet, f"{after.instance_id}: {after.reason}", context.policy)
            return replace(step, commands=(*step.commands, told))
    elif after.status is InstanceStatus.AVAILABLE:
        reports = _of_health(before, after, incident_id)
        if before.incident_id and not notices and not reports and _is_well(after):
            is_of_mps = before.status is InstanceStatus.AVAILABLE and _mps_reason(before) and not _impaired(before)
            return _over(before, step, instances.mps_daemon_back if is_of_mps else instances.back_in_service)
        notices += reports
    orders: tuple[Any, ...] = tuple(notices)
    if _now_needs_operator(before, after):
        data = {
            "instance_id": before.instance_id,
            "reason": after.reason,
            "epoch": after.epoch,
            "incident_id": incident_id if notices else before.incident_id or None,
        }
        orders = (*orders, commands.PublishEvent("Operator Action Required", data))
    if not orders:
        return step
    incident = {"incident_id": incident_id, "incident_since": before.incident_since or context.now}
    changes = {**step.changes, **(incident if notices else {})}
    return replace(step, changes=changes, commands=(*step.commands, *_in_order(notices), *orders[len(notices) :]))


def _with_deadline(before: Instance, after: Instance, step: Step, context: DecisionContext) -> Instance:
    """Return `after` with the deadline that its new status will get."""
    if "deadline_at" in step.changes or step.status == before.status:
        return after
    return replace_fields(after, {"deadline_at": deadlines(after, context)[0]})


def _over(before: Instance, step: Step, notification: Any, **more: Any) -> Step:
    """Return `step` with the notification that closes the incident."""
    changes = {**step.changes, "incident_id": "", "incident_since": None}
    return replace(step, changes=changes, commands=(*step.commands, notification(before, step.reason, **more)))


def _in_order(notices: list[commands.NotifyOperator]) -> list[commands.NotifyOperator]:
    """Return the notifications; of two at once, the second belongs to the thread that the first opens."""
    return [notice if n == 0 else replace(notice, phase=Phase.ESCALATED) for n, notice in enumerate(notices)]


# -- quarantine --------------------------------------------------------------------------------------------------------


def _now_needs_operator(before: Instance, after: Instance) -> bool:
    """Return whether the instance needs an operator only since this step."""
    return after.needs_operator and not before.needs_operator


def _of_quarantine(
    before: Instance,
    after: Instance,
    incident_id: str,
    event: events.InstanceEvent,
    context: DecisionContext,
    fleet: Fleet | None,
) -> list[commands.NotifyOperator]:
    """Return the notifications about a quarantined instance."""
    if after.held is not None:
        # A repair that is tried again and held again was notified before.
        if before.held is not None or _is_blocked_by_fleet(after, context, fleet):
            return []
        return [instances.repair_held(before, incident_id, after.reason, after.deadline_at)]
    by_operator = after.quarantine is not None and after.quarantine.by
    if isinstance(event, events.QuarantineRequested) or (before.status is InstanceStatus.GONE and by_operator):
        if not _now_needs_operator(before, after):
            return []
        return [instances.withdrawn(before, incident_id, after.reason, after.deadline_at)]
    is_reminder = isinstance(event, events.InstanceDeadlineReached)
    if not (_now_needs_operator(before, after) or is_reminder) or _is_covered_by_fleet(before, after, context, fleet):
        return []
    asks_reboot = (
        isinstance(event, events.CheckEnded)
        and event.verdict.outcome is CheckOutcome.REBOOT
        and before.status is InstanceStatus.VERIFYING
        and before.need is None
    )
    ranks = tuple(dict.fromkeys((*after.ranks_to_end, *after.orphaned_ranks)))
    return [
        instances.quarantined(
            before, incident_id, after.reason, after.deadline_at, asks_reboot=asks_reboot, ranks=ranks
        )
    ]


def begins_idle_repair(before: Instance, after: Instance) -> bool:
    """Return whether a repair begins for which no job waits and of which operators have not heard."""
    need = after.need
    begins = after.status in BEING_REPAIRED and before.status not in IN_REPAIR
    waits = need is not None and (need.job_id or need.ends is not None)
    return begins and not waits and not after.also_waiting and not before.incident_id


def _is_blocked_by_fleet(after: Instance, context: DecisionContext, fleet: Fleet | None) -> bool:
    """Return whether only the fleet limits hold the repair back."""
    need = after.need
    if fleet is None or need is None or claimants(after, need):
        return False
    # The limit of replacements is left out: an operator should know of new instances that are faulty too.
    return bool(repair_blocked_reason(fleet, after.instance_id, context.policy, context.now))


def _is_covered_by_fleet(before: Instance, after: Instance, context: DecisionContext, fleet: Fleet | None) -> bool:
    """Return whether so many instances are suspected that the notification of the fleet is enough."""
    if fleet is None:
        return False
    blamed_now = after.blamed_at is not None and after.blamed_at != before.blamed_at
    held_till_now = before.held is not None and fleet.pause is not None
    beyond_budget = blamed_now and len(fleet.blamed) > budget(fleet, context.policy)
    return fleet.opened_at is not None or held_till_now or beyond_budget


# -- warnings ----------------------------------------------------------------------------------------------------------


def _is_announced(departure: Interruption | None) -> bool:
    """Return whether an operator can act on the interruption."""
    return departure is not None and departure.kind in _ANNOUNCED


def _is_leaving(departure: Interruption | None) -> bool:
    """Return whether the interruption is more than a recommendation."""
    return departure is not None and departure.kind is not DepartureKind.REBALANCE


def _of_health(before: Instance, after: Instance, incident_id: str) -> list[commands.NotifyOperator]:
    """Return the notification about what health sources newly report of a working instance."""
    if new := _impaired(after) - (_impaired(before) if before.incident_id else frozenset()):
        return [instances.suspected(before, incident_id, _sentence(after, new))]
    if (reason := _mps_reason(after)) and not (before.incident_id and _mps_reason(before)):
        return [instances.mps_daemon_down(before, incident_id, reason)]
    return []


def _is_well(instance: Instance) -> bool:
    """Return whether no health source reports the instance or its MPS daemon as impaired, and it stays."""
    return not _impaired(instance) and not _mps_reason(instance) and not _is_leaving(instance.departure)


def _impaired(instance: Instance) -> frozenset[str]:
    """Return the health sources that report the instance impaired."""
    return frozenset(kind for kind, report in instance.health.items() if report.impairs)


def _mps_reason(instance: Instance) -> str:
    """Return why ECS calls the MPS daemon of the instance impaired; "" if it does not."""
    report = instance.health.get(HealthKind.ACCELERATED_COMPUTE)
    return report.sentence if report is not None and is_about_mps(report) else ""


def _sentence(instance: Instance, kinds: frozenset[str]) -> str:
    """Return the reports of the health sources `kinds` as a sentence."""
    reports = [(kind, instance.health[kind]) for kind in sorted(kinds)]
    return "; ".join(report.clause(kind) for kind, report in reports)
