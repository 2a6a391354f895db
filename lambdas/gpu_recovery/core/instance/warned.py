"""Warnings about a machine that works: watchers who find it impaired, and announcements that it will be taken away.

A warning may be wrong, late or lost, so it moves nothing by itself that cannot be moved back: nothing new is placed on
the instance, those who work on it hear of what is certain, and a repair goes through the ladder like any other.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from .. import commands, events, notice
from ..machine import Given, Ignore, Step
from ..policy import within
from ..signals import DepartureKind, HealthKind, HealthStatus
from ..xid import XidClass, class_of
from .ladder import asks_again, held_too_long, meet
from .orders import poke, verify
from .people import reminded
from .record import Departure, Health, Instance, InstanceStatus, Need, Rung

MOVED_LITTLE = 3_600
"""Two announcements of one kind that differ by less, in seconds, are one that came by two ways."""


# -- watchers ----------------------------------------------------------------------------------------------------------


def health_noted(instance: Instance, event: events.HealthReported, given: Given) -> Step | Ignore:
    """Kept, and nothing more: the instance is busy with something that will show how it is."""
    return Step(instance.status, instance.reason, _health(instance, event))


def health_reported(instance: Instance, event: events.HealthReported, given: Given) -> Step | Ignore:
    """A watcher finds a working instance impaired, or well again."""
    changes = _health(instance, event)
    if event.status is not HealthStatus.IMPAIRED:
        was = instance.health.get(event.kind)
        well = event.status is HealthStatus.OK and was is not None and was.status is HealthStatus.IMPAIRED
        return Step(instance.status, instance.reason, changes, (poke(instance),) if well else ())
    evidence = f"{event.kind} is {event.status}" + (f": {event.sentence}" if event.sentence else "")
    rung = _rung_of(event)
    if rung is None:
        return Step(instance.status, evidence, changes, (notice.suspected(instance, evidence),))
    return meet(instance, Need(rung, evidence, given.now, source=event.kind), given, changes)


def health_of_held(instance: Instance, event: events.HealthReported, given: Given) -> Step | Ignore:
    """The watcher whose word is waiting to be acted on says that all is well: a check will show."""
    changes, need = _health(instance, event), instance.need
    if need is None or need.source != event.kind or event.status is not HealthStatus.OK:
        return Step(instance.status, instance.reason, changes)
    if instance.claims:
        return Step(instance.status, instance.reason, changes)
    reason = f"{event.kind} is {event.status} again: it must pass a check first"
    return verify(instance, reason, False, {**changes, "need": None})


def _health(instance: Instance, event: events.HealthReported) -> dict[str, Any]:
    known = Health(event.status, event.since, event.sentence)
    return {"health": {**instance.health, event.kind: known}}


def _rung_of(event: events.HealthReported) -> Rung | None:
    """What an impairment asks for; None where it is no reason to touch the machine.

    GPUs are asked by a check of our own. EC2's system check fails for the host under the machine, which another host
    cures; its instance check for the machine itself, which a reboot cures (EC2 user guide, status checks).
    """
    if event.kind == HealthKind.ACCELERATED_COMPUTE:
        harmless = (XidClass.APP, XidClass.IGNORE, XidClass.WATCH, XidClass.FOLLOW_OTHER)
        return None if event.xid is not None and class_of(event.xid) in harmless else Rung.CHECK
    return {HealthKind.SYSTEM_STATUS: Rung.REPLACE, HealthKind.INSTANCE_STATUS: Rung.REBOOT}.get(event.kind)


# -- announcements -----------------------------------------------------------------------------------------------------


def departure_announced(instance: Instance, event: events.DepartureAnnounced, given: Given) -> Step | Ignore:
    """It will be taken away, or may be: nothing new is placed on it, and its jobs are moved in time."""
    known = instance.departure
    if event.called_off:
        return _called_off(instance, event, given)
    if known is not None and _is_known(known, event):
        return Ignore("that is known")
    departure = Departure(event.kind, event.source, event.leaves_at, event.sentence)
    changes = _departure(instance, departure, given)
    words = () if event.kind is DepartureKind.REBALANCE else (notice.departure(instance, departure),)
    if instance.status is InstanceStatus.AVAILABLE and _move_at(departure, given) <= given.now:
        return leave(instance, departure, changes, words, given)
    return Step(instance.status, event.sentence, changes, words)


def _called_off(instance: Instance, event: events.DepartureAnnounced, given: Given) -> Step | Ignore:
    if instance.departure is None or instance.departure.source != event.source:
        return Ignore("that announcement is not known, or over")
    changes = _departure(instance, None, given)
    if instance.held is not None and instance.need is not None and instance.need.source == event.source:
        reason = f"called off: {event.sentence}; it must pass a check first"
        return verify(instance, reason, False, {**changes, "need": None})
    return Step(instance.status, instance.reason, changes, (poke(instance),))


def _is_known(known: Departure, event: events.DepartureAnnounced) -> bool:
    """Whether it is the same announcement again, or the same fate by another way; what is graver is always news."""
    order = list(_GRAVITY)
    if order.index(event.kind) < order.index(known.kind):
        return True
    moved = abs((known.leaves_at - event.leaves_at).total_seconds()) >= MOVED_LITTLE
    return event.kind is known.kind and not moved


_GRAVITY = (DepartureKind.REBALANCE, DepartureKind.MAINTENANCE, DepartureKind.RETIREMENT, DepartureKind.INTERRUPTION)


def _departure(instance: Instance, departure: Departure | None, given: Given) -> dict[str, Any]:
    """The changes that keep an announcement; an instance that works is woken when it is time to act on it."""
    changes: dict[str, Any] = {"departure": departure}
    if instance.status is InstanceStatus.AVAILABLE:
        changes["deadline_at"] = wake_at(departure, _reserved_until(instance, given), given)
    return changes


def _reserved_until(instance: Instance, given: Given) -> datetime | None:
    return instance.status_at + within(given.policy.reserve_s) if instance.reserved_for else None


def wake_at(departure: Departure | None, reserved_until: datetime | None, given: Given) -> datetime | None:
    """When an instance that works must next be thought of: its reservation ends, or it is time to leave it."""
    move_at = _move_at(departure, given) if departure is not None else None
    return min((at for at in (reserved_until, move_at) if at is not None), default=None)


def _move_at(departure: Departure, given: Given) -> datetime:
    """When to act on an announcement: at once on an interruption, a recommendation is only forgotten in time."""
    if departure.kind is DepartureKind.REBALANCE:
        return departure.leaves_at + within(given.policy.avoid_s)
    if departure.kind is DepartureKind.INTERRUPTION:
        return given.now
    return departure.leaves_at - within(given.policy.leave_lead_s)


def leave(
    instance: Instance, departure: Departure, changes: dict[str, Any], orders: tuple[Any, ...], given: Given
) -> Step:
    """It is time: those who work on it are moved. A retirement is met by replacing it, where that is allowed."""
    told = tuple(
        commands.TellJob(
            job_id,
            events.InstanceLeaving(
                at=given.now, attempt=claim.attempt, instance_id=instance.instance_id, sentence=departure.sentence
            ),
        )
        for job_id, claim in sorted(instance.claims.items())
    )
    if departure.kind is DepartureKind.RETIREMENT and given.policy.replace:
        need = Need(Rung.REPLACE, departure.sentence, given.now, source=departure.source)
        timeless = {key: value for key, value in changes.items() if key != "deadline_at"}
        return meet(instance, need, given, timeless, orders)
    return Step(instance.status, departure.sentence, {**changes, "deadline_at": None}, (*orders, *told))


# -- time --------------------------------------------------------------------------------------------------------------


def time_for_available(instance: Instance, event: events.InstanceDeadlineReached, given: Given) -> Step | Ignore:
    """A reservation has run out, or it is time to leave the machine."""
    departure = instance.departure
    if departure is not None and _move_at(departure, given) <= given.now:
        if departure.kind is not DepartureKind.REBALANCE:
            return leave(instance, departure, {"reserved_for": ""}, (), given)
        return Step(instance.status, instance.reason, _departure(instance, None, given), (poke(instance),))
    reason = f"no longer kept for {instance.reserved_for}" if instance.reserved_for else instance.reason
    changes = {"reserved_for": "", "deadline_at": wake_at(departure, None, given)}
    return Step(instance.status, reason, changes, (poke(instance),))


def time_for_quarantined(instance: Instance, event: events.InstanceDeadlineReached, given: Given) -> Step | Ignore:
    """What is held was held too long; what waits for a person is said again."""
    if instance.held is not None and instance.need is not None:
        return held_too_long(instance, instance.need, instance.held, given)
    return reminded(instance, given)


def look_at_held(instance: Instance, event: events.InstanceLookDue, given: Given) -> Step | Ignore:
    """May what is held begin by now?"""
    if instance.held is None or instance.need is None:
        return Ignore("nothing is held back")
    return asks_again(instance, instance.need, given)
