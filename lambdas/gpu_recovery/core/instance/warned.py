"""Warnings about a machine that works: watchers who find it impaired, and announcements that it will be taken away.

A warning may be wrong, late or lost, so it moves nothing by itself that cannot be moved back: nothing new is placed on
the instance, those who work on it hear of what is certain, and a repair goes through the ladder like any other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any

from .. import commands, events
from ..copies import altered
from ..machine import Given, Ignore, Step
from ..policy import within
from ..signals import DepartureKind, HealthKind, HealthStatus
from ..xid import HARMLESS, class_of
from .faults import fault_after
from .ladder import EVIDENCE_CHARACTERS_MAX, asks_again, checked_instead, held_too_long, is_on_a_new_host, meet
from .orders import poke
from .people import reminded
from .record import Departure, Health, Instance, InstanceStatus, Need, Rung

MOVED_LITTLE = 3_600
"""Two announcements of one kind that differ by less, in seconds, are one that came by two ways."""

ANNOUNCED_MAX = 8
"""Sources of announcements whose last word is remembered."""
_CERTAIN = (DepartureKind.INTERRUPTION, DepartureKind.MAINTENANCE, DepartureKind.RETIREMENT)
"""What is announced for certain: those who work there must leave in time."""


# -- watchers ----------------------------------------------------------------------------------------------------------


def health_noted(instance: Instance, event: events.HealthReported, given: Given) -> Step | Ignore:
    """Kept, and nothing more: the instance is busy with something that will show how its GPUs are.

    What it will not show, the health of the machine itself, is thought of when the instance works again.
    """
    return Step(instance.status, instance.reason, _health(instance, event, given, answered=event.kind not in _RUNGS))


def health_reported(instance: Instance, event: events.HealthReported, given: Given) -> Step | Ignore:
    """A watcher finds a working instance impaired, or well again."""
    changes = _health(instance, event, given)
    if event.status is not HealthStatus.IMPAIRED:
        was = instance.health.get(event.kind)
        well = event.status is HealthStatus.OK and was is not None and was.status is HealthStatus.IMPAIRED
        return Step(instance.status, instance.reason, changes, (poke(instance),) if well else ())
    evidence = f"{event.kind} is {event.status}" + (f": {event.sentence}" if event.sentence else "")
    is_old = given.now - event.at >= within(given.policy.evidence_stale_s)
    if is_old and event.kind in _RUNGS:
        return Ignore("said some time ago, and EC2 is asked each minute how the machine is")
    rung = _rung_of(event) if not is_old else None
    if rung is None or not instance.gpus_most:  # what works without GPUs is not ours to repair
        return Step(instance.status, evidence, changes)
    return meet(instance, Need(rung, evidence, given.now, source=event.kind), given, changes)


def health_of_held(instance: Instance, event: events.HealthReported, given: Given) -> Step | Ignore:
    """The watcher whose word is waiting to be acted on says that all is well: a check will show."""
    need = instance.need
    asked = need is not None and need.source == event.kind
    changes = _health(instance, event, given, answered=asked or event.kind not in _RUNGS)
    if not asked or event.status is not HealthStatus.OK or instance.claims:
        return Step(instance.status, instance.reason, changes)
    return checked_instead(instance, f"{event.kind} is {event.status} again", changes)


def _health(instance: Instance, event: events.HealthReported, given: Given, answered: bool = True) -> dict[str, Any]:
    """The changes that keep a watcher's word. One that cannot tell takes nothing back that was said before."""
    before = instance.health.get(event.kind)
    sentence, fault = event.sentence[:EVIDENCE_CHARACTERS_MAX], fault_after(event, before, given)
    word = Health(event.status, event.since, sentence, answered, fault)
    unsure = event.status in (HealthStatus.INSUFFICIENT_DATA, HealthStatus.INITIALIZING)
    if unsure and before is not None and before.status is HealthStatus.IMPAIRED:
        word = replace(before, since=event.since)
    return {"health": {**instance.health, event.kind: word}}


def unanswered(instance: Instance) -> HealthKind | None:
    """The watcher who found the machine impaired while it was busy, and on whose word nothing was done yet."""
    words = instance.health.items()
    kinds = [kind for kind, one in words if one.status is HealthStatus.IMPAIRED and not one.answered]
    return HealthKind(min(kinds)) if kinds and instance.gpus_most else None


def _answer(instance: Instance, kind: HealthKind, given: Given) -> Step:
    """It works again, and the watcher has not taken its word back since."""
    word = instance.health[kind]
    changes = {"health": {**instance.health, kind: replace(word, answered=True)}}
    evidence = f"{kind} is {word.status}" + (f": {word.sentence}" if word.sentence else "")
    return meet(instance, Need(_RUNGS[kind], evidence, given.now, source=kind), given, changes)


def _rung_of(event: events.HealthReported) -> Rung | None:
    """What an impairment asks for; None where it is no reason to touch the machine.

    GPUs are asked by a check of our own. EC2's system check fails for the host under the machine, which another host
    cures; its instance check for the machine itself, which a reboot cures (EC2 user guide, status checks).
    """
    if event.kind == HealthKind.ACCELERATED_COMPUTE:
        return None if event.xid is not None and class_of(event.xid) in HARMLESS else Rung.CHECK
    return Rung.CHECK if event.kind == HealthKind.NODE_AGENT else _RUNGS.get(event.kind)


_RUNGS = {HealthKind.SYSTEM_STATUS: Rung.REPLACE, HealthKind.INSTANCE_STATUS: Rung.REBOOT}


# -- announcements -----------------------------------------------------------------------------------------------------


def departure_announced(instance: Instance, event: events.DepartureAnnounced, given: Given) -> Step | Ignore:
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
    departure = Departure(event.kind, event.source, event.leaves_at, event.sentence[:EVIDENCE_CHARACTERS_MAX])
    changes = {**_departure(instance, departure, given), **_announced(instance, event)}
    is_due = move_at(departure, given) <= given.now
    if instance.status is InstanceStatus.AVAILABLE and is_due:
        return leave(instance, departure, changes, given)
    told = _tell_to_leave(instance, departure, given) if is_due and departure.kind in _CERTAIN else ()
    reason = departure.sentence if instance.status is InstanceStatus.AVAILABLE else instance.reason
    return Step(instance.status, reason, changes, told)


def _called_off(instance: Instance, event: events.DepartureAnnounced, given: Given) -> Step | Ignore:
    if instance.departure is None or not is_called_off(instance.departure, event):
        # Perhaps it has overtaken the announcement itself, which then comes too late.
        return Step(instance.status, instance.reason, _announced(instance, event))
    changes = {**_departure(instance, None, given), **_announced(instance, event)}
    need = instance.need if instance.status is InstanceStatus.QUARANTINED else None
    if need is not None and need.source == instance.departure.source and not instance.claims:
        return checked_instead(instance, f"called off: {event.sentence}", changes)
    return Step(instance.status, instance.reason, changes, (poke(instance),))


def _announced(instance: Instance, event: events.DepartureAnnounced) -> dict[str, Any]:
    """The change that keeps when `event`'s source last said something, the latest sources only."""
    latest = sorted({**instance.announced, event.source: event.at}.items(), key=lambda one: one[1])
    return {"announced": dict(latest[-ANNOUNCED_MAX:])}


def is_known(known: Departure, event: events.DepartureAnnounced) -> bool:
    """Whether it is the same announcement again, or the same fate by another way; what is graver is always news."""
    order = list(_GRAVITY)
    return order.index(event.kind) < order.index(known.kind) or _is_same_fate(known, event)


def is_called_off(known: Departure, event: events.DepartureAnnounced) -> bool:
    """Whether the one that is known is called off. AWS Health and EC2 name the same announcement differently."""
    return known.source == event.source or _is_same_fate(known, event)


def _is_same_fate(known: Departure, event: events.DepartureAnnounced) -> bool:
    moved = abs((known.leaves_at - event.leaves_at).total_seconds()) >= MOVED_LITTLE
    return event.kind is known.kind and not moved


_GRAVITY = (DepartureKind.REBALANCE, DepartureKind.MAINTENANCE, DepartureKind.RETIREMENT, DepartureKind.INTERRUPTION)


def _departure(instance: Instance, departure: Departure | None, given: Given) -> dict[str, Any]:
    """The changes that keep an announcement; an instance that works is woken when it is time to act on it."""
    changes: dict[str, Any] = {"departure": departure}
    if instance.status is InstanceStatus.AVAILABLE:
        changes["deadline_at"] = wake_at(replace(instance, departure=departure), instance.status_at, given)
    return changes


def wake_at(instance: Instance, since: datetime, given: Given) -> datetime | None:
    """When an instance that works `since` must next be thought of; None if it need not be."""
    return min(_times(instance, since, given), default=None)


def wake_later(instance: Instance, given: Given) -> datetime | None:
    """The same once everything was done, or withheld, that was due by now."""
    return min((at for at in _times(instance, instance.status_at, given) if at > given.now), default=None)


def _times(instance: Instance, since: datetime, given: Given) -> Iterator[datetime]:
    """When its reservation ends, when it is time to leave it, and when a watcher's word has stood long enough."""
    if instance.reserved_for:
        yield since + within(given.policy.reserve_s)
    if instance.departure is not None:
        yield move_at(instance.departure, given)
    if unanswered(instance) is not None:
        yield since + within(given.policy.reboot_settle_s)


def move_at(departure: Departure, given: Given) -> datetime:
    """When to act on an announcement: at once on an interruption, a recommendation is only forgotten in time."""
    if departure.kind is DepartureKind.REBALANCE:
        return departure.leaves_at + within(given.policy.avoid_s)
    if departure.kind is DepartureKind.INTERRUPTION:
        return given.now
    return departure.leaves_at - within(given.policy.leave_lead_s)


def leave(instance: Instance, departure: Departure, changes: dict[str, Any], given: Given) -> Step:
    """It is time: those who work on it are moved. A retirement is met by replacing it, where that is allowed.

    A machine that is still there long after it was to be interrupted or rebooted is in use again; one that is to be
    retired waits until EC2 calls that off, or takes it.
    """
    if departure.kind is DepartureKind.RETIREMENT and given.policy.replace:
        need = Need(Rung.REPLACE, departure.sentence, given.now, source=departure.source)
        timeless = {key: value for key, value in changes.items() if key != "deadline_at"}
        return meet(instance, need, given, timeless)
    retired = departure.kind is DepartureKind.RETIREMENT
    over_at = None if retired else max(departure.leaves_at, given.now) + within(given.policy.avoid_s)
    left = {**changes, "reserved_for": "", "deadline_at": over_at}
    return Step(instance.status, departure.sentence, left, _tell_to_leave(instance, departure, given))


def _tell_to_leave(instance: Instance, departure: Departure, given: Given) -> tuple[Any, ...]:
    return tuple(
        commands.TellJob(
            job_id,
            events.InstanceLeaving(
                at=given.now, attempt=claim.attempt, instance_id=instance.instance_id, sentence=departure.sentence
            ),
        )
        for job_id, claim in sorted(instance.claims.items())
    )


# -- time --------------------------------------------------------------------------------------------------------------


def time_for_available(instance: Instance, event: events.InstanceDeadlineReached, given: Given) -> Step | Ignore:
    """A watcher's word still stands, a reservation has run out, or it is time to leave the machine."""
    departure, kind = instance.departure, unanswered(instance)
    if kind is not None and instance.status_at + within(given.policy.reboot_settle_s) <= given.now:
        return _answer(instance, kind, given)
    if departure is not None and _is_over(departure, given):
        return Step(instance.status, instance.reason, _departure(instance, None, given), (poke(instance),))
    if departure is not None and move_at(departure, given) <= given.now:
        return leave(instance, departure, {}, given)
    if not instance.reserved_for:  # it was given to whom it was kept for: there is nothing new to give
        return Step(instance.status, instance.reason, {"deadline_at": wake_at(instance, instance.status_at, given)})
    freed = altered(instance, {"reserved_for": ""})
    changes = {"reserved_for": "", "deadline_at": wake_at(freed, instance.status_at, given)}
    return Step(instance.status, f"no longer kept for {instance.reserved_for}", changes, (poke(instance),))


def _is_over(departure: Departure | events.DepartureAnnounced, given: Given) -> bool:
    """Whether the machine should be gone by now, or rebooted, and is still there."""
    over_at = departure.leaves_at + within(given.policy.avoid_s)
    return departure.kind is not DepartureKind.RETIREMENT and over_at <= given.now


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
