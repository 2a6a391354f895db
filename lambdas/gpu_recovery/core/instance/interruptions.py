"""Announcements that an instance will be taken away: Spot interruptions, scheduled events, retirements, rebalancing.

An announcement may be wrong, late or lost, or be called off. So nothing new is placed on the instance, its jobs are
told in time if the announcement is certain, and a replacement passes the same limits as every other repair.
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
from gpu_recovery.core.instance.health_reports import answer_report, unhandled_report
from gpu_recovery.core.instance.record import Instance, InstanceStatus, Interruption, RepairLevel, RepairNeed
from gpu_recovery.core.policy import within
from gpu_recovery.core.state_machine import DecisionContext, Ignore, Step, replace_fields

MOVED_LITTLE = 3_600
"""Two announcements of one kind that differ by less, in seconds, are one that came by two ways."""

ANNOUNCED_MAX = 8
"""Sources of announcements whose last word is remembered."""
_CERTAIN = (DepartureKind.INTERRUPTION, DepartureKind.MAINTENANCE, DepartureKind.RETIREMENT)
"""What is announced for certain: those who work there must leave in time."""


def departure_announced(instance: Instance, event: events.DepartureAnnounced, given: DecisionContext) -> Step | Ignore:
    """It will be taken away, or may be: nothing new is placed on it, and its jobs are moved in time."""
    known = instance.departure
    if event.called_off:
        return _called_off(instance, event, given)
    if known is not None and is_known(known, event):
        return Ignore("that is known")
    if _is_over(event, given):
        return Ignore("the time it was announced for has long passed, and the instance is still there")
    if event.kind is DepartureKind.RETIREMENT and is_on_a_new_host(instance, given):
        return Ignore("another host has just been put under it")
    departure = Interruption(event.kind, event.source, event.leaves_at, event.sentence[:EVIDENCE_CHARACTERS_MAX])
    changes = {**_keep_interruption(instance, departure, given), **_announced(instance, event)}
    is_due = evacuation_at(departure, given) <= given.now
    if instance.status is InstanceStatus.AVAILABLE and is_due:
        return evacuate(instance, departure, changes, given)
    told = _ask_jobs_to_leave(instance, departure, given) if is_due and departure.kind in _CERTAIN else ()
    reason = departure.sentence if instance.status is InstanceStatus.AVAILABLE else instance.reason
    return Step(instance.status, reason, changes, told)


def _called_off(instance: Instance, event: events.DepartureAnnounced, given: DecisionContext) -> Step | Ignore:
    if instance.departure is None or not is_called_off(instance.departure, event):
        # Perhaps it has overtaken the announcement itself, which then comes too late.
        return Step(instance.status, instance.reason, _announced(instance, event))
    changes = {**_keep_interruption(instance, None, given), **_announced(instance, event)}
    need = instance.need if instance.status is InstanceStatus.QUARANTINED else None
    if need is not None and need.source == instance.departure.source and not instance.claims:
        return check_instead(instance, f"called off: {event.sentence}", changes)
    return Step(instance.status, instance.reason, changes, (poke_scheduler(instance),))


def _announced(instance: Instance, event: events.DepartureAnnounced) -> dict[str, Any]:
    """The change that keeps when `event`'s source last said something, the latest sources only."""
    latest = sorted({**instance.announced, event.source: event.at}.items(), key=lambda one: one[1])
    return {"announced": dict(latest[-ANNOUNCED_MAX:])}


def is_known(known: Interruption, event: events.DepartureAnnounced) -> bool:
    """Whether it is the same announcement again, or the same fate by another way; what is graver is always news."""
    order = list(_GRAVITY)
    return order.index(event.kind) < order.index(known.kind) or _is_same_interruption(known, event)


def is_called_off(known: Interruption, event: events.DepartureAnnounced) -> bool:
    """Whether the one that is known is called off. AWS Health and EC2 name the same announcement differently."""
    return known.source == event.source or _is_same_interruption(known, event)


def _is_same_interruption(known: Interruption, event: events.DepartureAnnounced) -> bool:
    moved = abs((known.leaves_at - event.leaves_at).total_seconds()) >= MOVED_LITTLE
    return event.kind is known.kind and not moved


_GRAVITY = (DepartureKind.REBALANCE, DepartureKind.MAINTENANCE, DepartureKind.RETIREMENT, DepartureKind.INTERRUPTION)


def _keep_interruption(instance: Instance, departure: Interruption | None, given: DecisionContext) -> dict[str, Any]:
    """The changes that keep an announcement; an instance that works is woken when it is time to act on it."""
    changes: dict[str, Any] = {"departure": departure}
    if instance.status is InstanceStatus.AVAILABLE:
        changes["deadline_at"] = next_wake_at(replace(instance, departure=departure), instance.status_at, given)
    return changes


def next_wake_at(instance: Instance, since: datetime, given: DecisionContext) -> datetime | None:
    """When an instance that works `since` must next be thought of; None if it need not be."""
    return min(_times(instance, since, given), default=None)


def next_wake_after_now(instance: Instance, given: DecisionContext) -> datetime | None:
    """The same once everything was done, or withheld, that was due by now."""
    return min((at for at in _times(instance, instance.status_at, given) if at > given.now), default=None)


def _times(instance: Instance, since: datetime, given: DecisionContext) -> Iterator[datetime]:
    """When its reservation ends, when it is time to leave it, and when a watcher's word has stood long enough."""
    if instance.reserved_for:
        yield since + within(given.policy.repaired_reservation_s)
    if instance.departure is not None:
        yield evacuation_at(instance.departure, given)
    if unhandled_report(instance) is not None:
        yield since + within(given.policy.reboot_settle_s)


def evacuation_at(departure: Interruption, given: DecisionContext) -> datetime:
    """When to act on an announcement: at once on an interruption, a recommendation is only forgotten in time."""
    if departure.kind is DepartureKind.REBALANCE:
        return departure.leaves_at + within(given.policy.rebalance_avoid_s)
    if departure.kind is DepartureKind.INTERRUPTION:
        return given.now
    return departure.leaves_at - within(given.policy.departure_lead_s)


def evacuate(instance: Instance, departure: Interruption, changes: dict[str, Any], given: DecisionContext) -> Step:
    """It is time: those who work on it are moved. A retirement is met by replacing it, where that is allowed.

    A machine that is still there long after it was to be interrupted or rebooted is in use again; one that is to be
    retired waits until EC2 calls that off, or takes it.
    """
    if departure.kind is DepartureKind.RETIREMENT and given.policy.replace:
        need = RepairNeed(RepairLevel.REPLACE, departure.sentence, given.now, source=departure.source)
        timeless = {key: value for key, value in changes.items() if key != "deadline_at"}
        return escalate(instance, need, given, timeless)
    retired = departure.kind is DepartureKind.RETIREMENT
    over_at = None if retired else max(departure.leaves_at, given.now) + within(given.policy.rebalance_avoid_s)
    left = {**changes, "reserved_for": "", "deadline_at": over_at}
    return Step(instance.status, departure.sentence, left, _ask_jobs_to_leave(instance, departure, given))


def _ask_jobs_to_leave(instance: Instance, departure: Interruption, given: DecisionContext) -> tuple[Any, ...]:
    return tuple(
        commands.TellJob(
            job_id,
            events.InstanceLeaving(
                at=given.now, attempt=claim.attempt, instance_id=instance.instance_id, sentence=departure.sentence
            ),
        )
        for job_id, claim in sorted(instance.claims.items())
    )


def deadline_of_available(
    instance: Instance, event: events.InstanceDeadlineReached, given: DecisionContext
) -> Step | Ignore:
    """A watcher's word still stands, a reservation has run out, or it is time to leave the machine."""
    departure, kind = instance.departure, unhandled_report(instance)
    if kind is not None and instance.status_at + within(given.policy.reboot_settle_s) <= given.now:
        return answer_report(instance, kind, given)
    if departure is not None and _is_over(departure, given):
        return Step(
            instance.status, instance.reason, _keep_interruption(instance, None, given), (poke_scheduler(instance),)
        )
    if departure is not None and evacuation_at(departure, given) <= given.now:
        return evacuate(instance, departure, {}, given)
    if not instance.reserved_for:  # it was given to whom it was kept for: there is nothing new to give
        return Step(
            instance.status, instance.reason, {"deadline_at": next_wake_at(instance, instance.status_at, given)}
        )
    freed = replace_fields(instance, {"reserved_for": ""})
    changes = {"reserved_for": "", "deadline_at": next_wake_at(freed, instance.status_at, given)}
    return Step(instance.status, f"no longer kept for {instance.reserved_for}", changes, (poke_scheduler(instance),))


def _is_over(departure: Interruption | events.DepartureAnnounced, given: DecisionContext) -> bool:
    """Whether the machine should be gone by now, or rebooted, and is still there."""
    over_at = departure.leaves_at + within(given.policy.rebalance_avoid_s)
    return departure.kind is not DepartureKind.RETIREMENT and over_at <= given.now
