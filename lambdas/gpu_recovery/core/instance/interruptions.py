"""Interruptions: Spot interruption, scheduled event, retirement, rebalance recommendation.

An announcement may be wrong, late or lost, or be canceled. So nothing new is placed on the instance, and its jobs are
notified in time if the interruption is certain. A replacement passes the same limits as every other repair.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any

from gpu_recovery.core import commands, events
from gpu_recovery.core.health_signals import DepartureKind
from gpu_recovery.core.instance.effects import poke_scheduler
from gpu_recovery.core.instance.escalation import EVIDENCE_CHARACTERS_MAX, check_instead, escalate, is_on_a_new_host
from gpu_recovery.core.instance.health_reports import answer_report, unhandled_report, waits_for_jobs
from gpu_recovery.core.instance.record import Instance, InstanceStatus, Interruption, RepairLevel, RepairNeed
from gpu_recovery.core.policy import duration
from gpu_recovery.core.state_machine import DecisionContext, Ignore, Step, replace_fields

SAME_INTERRUPTION_S = 3_600
"""Seconds by which the times of two announcements of one kind may differ if both are about the same interruption."""

ANNOUNCED_MAX = 8
"""Number of announcement sources for which the time of the last message is saved."""
_CERTAIN = (DepartureKind.INTERRUPTION, DepartureKind.MAINTENANCE, DepartureKind.RETIREMENT)
"""Kinds of interruptions that are certain: jobs on the instance must leave in time."""


def departure_announced(
    instance: Instance, event: events.DepartureAnnounced, context: DecisionContext
) -> Step | Ignore:
    """Record an announced interruption, stop placing on the instance, and move its jobs in time."""
    known = instance.departure
    if event.called_off:
        return _called_off(instance, event, context)
    if known is not None and is_known(known, event):
        return Ignore("it is known already")
    if _is_over(event, context):
        return Ignore("the time it was announced for has long passed, and the instance is still there")
    if event.kind is DepartureKind.RETIREMENT and is_on_a_new_host(instance, context):
        return Ignore("it has just been moved to another host")
    departure = Interruption(event.kind, event.source, event.leaves_at, event.sentence[:EVIDENCE_CHARACTERS_MAX])
    changes = {**_keep_interruption(instance, departure, context), **_announced(instance, event)}
    is_due = evacuation_at(departure, context) <= context.now
    if instance.status is InstanceStatus.AVAILABLE and is_due:
        return evacuate(instance, departure, changes, context)
    notices = _ask_jobs_to_leave(instance, departure, context) if is_due and departure.kind in _CERTAIN else ()
    reason = departure.sentence if instance.status is InstanceStatus.AVAILABLE else instance.reason
    return Step(instance.status, reason, changes, notices)


def _called_off(instance: Instance, event: events.DepartureAnnounced, context: DecisionContext) -> Step | Ignore:
    """Drop the interruption that `event` cancels. A replacement that is held for it becomes a check."""
    if instance.departure is None or not is_called_off(instance.departure, event):
        # The cancellation may have overtaken its announcement, which is then outdated on arrival.
        return Step(instance.status, instance.reason, _announced(instance, event))
    changes = {**_keep_interruption(instance, None, context), **_announced(instance, event)}
    need = instance.need if instance.status is InstanceStatus.QUARANTINED else None
    if need is not None and need.source == instance.departure.source and not instance.claims:
        return check_instead(instance, f"canceled: {event.sentence}", changes)
    return Step(instance.status, instance.reason, changes, (poke_scheduler(instance),))


def _announced(instance: Instance, event: events.DepartureAnnounced) -> dict[str, Any]:
    """Return the change that saves the time of the source's last message, for the latest sources only."""
    latest = sorted({**instance.announced, event.source: event.at}.items(), key=lambda item: item[1])
    return {"announced": dict(latest[-ANNOUNCED_MAX:])}


def is_known(known: Interruption, event: events.DepartureAnnounced) -> bool:
    """Return whether `event` adds nothing to the known interruption: it is the same one, or of a less serious kind."""
    order = list(_GRAVITY)
    return order.index(event.kind) < order.index(known.kind) or _is_same_interruption(known, event)


def is_called_off(known: Interruption, event: events.DepartureAnnounced) -> bool:
    """Return whether `event` cancels the known interruption.

    AWS Health and EC2 give the same announcement different names.
    """
    return known.source == event.source or _is_same_interruption(known, event)


def _is_same_interruption(known: Interruption, event: events.DepartureAnnounced) -> bool:
    """Return whether the event has the same kind as the known interruption and about the same time."""
    moved = abs((known.leaves_at - event.leaves_at).total_seconds()) >= SAME_INTERRUPTION_S
    return event.kind is known.kind and not moved


_GRAVITY = (DepartureKind.REBALANCE, DepartureKind.MAINTENANCE, DepartureKind.RETIREMENT, DepartureKind.INTERRUPTION)
"""Kinds of interruptions by seriousness, the most serious last."""


def _keep_interruption(instance: Instance, departure: Interruption | None, context: DecisionContext) -> dict[str, Any]:
    """Return the changes that save an interruption. A working instance gets a deadline at the time to act on it."""
    changes: dict[str, Any] = {"departure": departure}
    if instance.status is InstanceStatus.AVAILABLE:
        changes["deadline_at"] = next_wake_at(replace(instance, departure=departure), instance.status_at, context)
    return changes


def next_wake_at(instance: Instance, since: datetime, context: DecisionContext) -> datetime | None:
    """Return the next deadline of an instance that works since `since`; None if it has none."""
    return min(_times(instance, since, context), default=None)


def next_wake_after_now(instance: Instance, context: DecisionContext) -> datetime | None:
    """Return the next deadline after now, when everything due by now is done or withheld; None if there is none."""
    return min((at for at in _times(instance, instance.status_at, context) if at > context.now), default=None)


def _times(instance: Instance, since: datetime, context: DecisionContext) -> Iterator[datetime]:
    """Yield the deadlines: end of the reservation, time to act on the interruption, time to act on a health report."""
    if instance.reserved_for:
        yield since + duration(context.policy.repaired_reservation_s)
    if instance.departure is not None:
        yield evacuation_at(instance.departure, context)
    kind = unhandled_report(instance)
    if kind is not None:
        after = context.now if waits_for_jobs(instance, kind) else since
        yield after + duration(context.policy.reboot_settle_s)


def evacuation_at(departure: Interruption, context: DecisionContext) -> datetime:
    """Return when to act on an interruption.

    That is now for a Spot interruption, and `departure_lead_s` before a retirement or maintenance. A rebalance
    recommendation is dropped after `rebalance_avoid_s`.
    """
    if departure.kind is DepartureKind.REBALANCE:
        return departure.leaves_at + duration(context.policy.rebalance_avoid_s)
    if departure.kind is DepartureKind.INTERRUPTION:
        return context.now
    return departure.leaves_at - duration(context.policy.departure_lead_s)


def evacuate(instance: Instance, departure: Interruption, changes: dict[str, Any], context: DecisionContext) -> Step:
    """Ask the jobs on the instance to leave. On a retirement, replace the instance if replacing is switched on.

    An instance that still exists long after its interruption or maintenance is used again. An instance that will be
    retired waits until EC2 cancels the retirement or carries it out.
    """
    if departure.kind is DepartureKind.RETIREMENT and context.policy.replace:
        need = RepairNeed(RepairLevel.REPLACE, departure.sentence, context.now, source=departure.source)
        timeless = {key: value for key, value in changes.items() if key != "deadline_at"}
        return escalate(instance, need, context, timeless)
    retired = departure.kind is DepartureKind.RETIREMENT
    over_at = None if retired else max(departure.leaves_at, context.now) + duration(context.policy.rebalance_avoid_s)
    left = {**changes, "reserved_for": "", "deadline_at": over_at}
    return Step(instance.status, departure.sentence, left, _ask_jobs_to_leave(instance, departure, context))


def _ask_jobs_to_leave(instance: Instance, departure: Interruption, context: DecisionContext) -> tuple[Any, ...]:
    """Return the commands that ask every job on the instance to leave."""
    return tuple(
        commands.TellJob(
            job_id,
            events.InstanceLeaving(
                at=context.now, attempt=claim.attempt, instance_id=instance.instance_id, sentence=departure.sentence
            ),
        )
        for job_id, claim in sorted(instance.claims.items())
    )


def deadline_of_available(
    instance: Instance, event: events.InstanceDeadlineReached, context: DecisionContext
) -> Step | Ignore:
    """Act on an unhandled health report, on a due interruption, or on the end of a reservation."""
    departure, kind = instance.departure, unhandled_report(instance)
    settled = instance.status_at + duration(context.policy.reboot_settle_s) <= context.now
    if kind is not None and settled and not waits_for_jobs(instance, kind):
        return answer_report(instance, kind, context)
    if departure is not None and _is_over(departure, context):
        return Step(
            instance.status, instance.reason, _keep_interruption(instance, None, context), (poke_scheduler(instance),)
        )
    if departure is not None and evacuation_at(departure, context) <= context.now:
        return evacuate(instance, departure, {}, context)
    kept_until = instance.status_at + duration(context.policy.repaired_reservation_s)
    if not instance.reserved_for or context.now < kept_until:  # no reservation ends
        return Step(
            instance.status, instance.reason, {"deadline_at": next_wake_at(instance, instance.status_at, context)}
        )
    freed = replace_fields(instance, {"reserved_for": ""})
    changes = {"reserved_for": "", "deadline_at": next_wake_at(freed, instance.status_at, context)}
    return Step(instance.status, f"no longer kept for {instance.reserved_for}", changes, (poke_scheduler(instance),))


def _is_over(departure: Interruption | events.DepartureAnnounced, context: DecisionContext) -> bool:
    """Return whether the interruption should have happened by now although the instance still works."""
    over_at = departure.leaves_at + duration(context.policy.rebalance_avoid_s)
    return departure.kind is not DepartureKind.RETIREMENT and over_at <= context.now
