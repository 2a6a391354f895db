"""Deliver notifications of health sources to the instances that they are about.

Unknown instances are skipped: most EC2 instances of an account are not part of the cluster.

A notification that an account principal can cause at will, that may overtake another, or that is outdated, is only a
hint. Then EC2 or ECS is asked once, and the instance receives what the answer shows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from gpu_recovery.core import events
from gpu_recovery.core.health_signals import Ec2InstanceState
from gpu_recovery.core.instance.record import PRESENT, Instance
from gpu_recovery.core.notifications.instances import reservation_ending
from gpu_recovery.ecs_events.notify_once import notify_once
from gpu_recovery.ecs_events.undelivered_events import undelivered_ec2_events, undelivered_reports
from gpu_recovery.partial_failures import raise_all, run_each
from gpu_recovery.recovery import Recovery

STALE_AFTER = timedelta(minutes=5)
"""Age from which a report or an announcement is only a hint.

EventBridge delivers within seconds. An older event was retried, redriven or replayed from an archive, and the
reconciler has compared the instance several times since.
"""


@dataclass(frozen=True, slots=True)
class Ec2Hint:
    """A reason to ask EC2 about an instance: a state change, an alarm, or an outdated announcement.

    State changes overtake each other. Any principal that may call PutMetricAlarm or SetAlarmState can cause an alarm.

    sentence:      what was reported.
    is_terminated: whether EC2 reports the end of the instance. It counts even if EC2 no longer knows the instance.
    """

    instance_id: str
    sentence: str
    is_terminated: bool = False


@dataclass(frozen=True, slots=True)
class EcsHint:
    """A reason to ask ECS about the health of a container instance: an outdated report of ECS."""

    instance_id: str


@dataclass(frozen=True, slots=True)
class InstanceHealthEvent:
    """A report of a health source about one instance, as an event of the core."""

    instance_id: str
    event: events.HealthReported | events.DepartureAnnounced


@dataclass(frozen=True, slots=True)
class ReservationEnding:
    """The end of a Capacity Block: an announcement to each of our instances that EC2 shows in it.

    An extension that was requested before the warning may take effect until 35 minutes before the end (EC2 User Guide,
    "Extend Capacity Blocks"). So an instance that EC2 shows in the block after `ends_at` is in an extended block, and
    the warning is void.
    """

    reservation: str
    event: events.DepartureAnnounced
    ends_at: datetime


@dataclass(frozen=True, slots=True)
class SkippedNotification:
    """A part of a notification that has no consequence, with the reason."""

    sentence: str


HealthNotification = Ec2Hint | EcsHint | InstanceHealthEvent | ReservationEnding | SkippedNotification


def deliver(recovery: Recovery, notifications: Iterable[HealthNotification]) -> tuple[str, ...]:
    """Deliver each notification to its instance.

    Returns:
        One sentence for each notification that was skipped.
    """
    now = recovery.clock()
    current = dict.fromkeys(_hint_if_stale(notification, now) for notification in notifications)
    return tuple(sentence for notification in current if (sentence := _deliver_one(recovery, notification)))


def _hint_if_stale(notification: HealthNotification, now: datetime) -> HealthNotification:
    """Return the notification, or a hint in its place if it is outdated.

    The reports of one outdated event about one instance become equal hints.
    """
    if not isinstance(notification, InstanceHealthEvent) or now - notification.event.at < STALE_AFTER:
        return notification
    if isinstance(notification.event, events.DepartureAnnounced):
        return Ec2Hint(notification.instance_id, f"announced at {notification.event.at:%Y-%m-%d %H:%M} UTC")
    return EcsHint(notification.instance_id)


def _deliver_one(recovery: Recovery, notification: HealthNotification) -> str:
    """Deliver one notification; returns why it was skipped, "" if it was delivered."""
    if isinstance(notification, SkippedNotification):
        return notification.sentence
    if isinstance(notification, ReservationEnding):
        return _announce_to_all(recovery, notification)
    record = recovery.store.load_instance(notification.instance_id)
    if record is None:
        return f"there is no record of {notification.instance_id}"
    match notification:
        case InstanceHealthEvent():
            recovery.handle(notification.instance_id, notification.event)
            return ""
        case Ec2Hint():
            return _compare_with_ec2(recovery, record, notification)
        case EcsHint():
            return _compare_with_ecs(recovery, record)


def _announce_to_all(recovery: Recovery, ending: ReservationEnding) -> str:
    """Announce the end of a reservation to each of its instances, and notify operators once.

    Each instance decides by its own record. Operators receive one message about the block, instead of one for each of
    up to 64 instances. An unreadable record does not stop the announcement to the other instances.

    Returns:
        Why the announcement was skipped: the announced end has passed, or no instance of ours is in the reservation.
        "" if it was made.

    Raises:
        ExceptionGroup: records could not be read, or the announcement to some instances failed. The announcement to
            all other instances and the message to operators were sent.
    """
    if recovery.clock() >= ending.ends_at:
        return f"the announced end of {ending.reservation} has passed, at {ending.ends_at:%Y-%m-%d %H:%M} UTC"
    failures: list[Exception] = []
    names = [record.instance_id for record in recovery.store.instances_in(PRESENT, failures)]
    shown = recovery.actions.describe_ec2([name for name in names if name.startswith("i-")]) if names else {}
    ours = [name for name, instance in shown.items() if instance.reservation == ending.reservation]
    failed = set(ours)

    def announce(name: str) -> None:
        recovery.handle(name, ending.event)
        failed.remove(name)

    failures += run_each(announce, ours)
    leaving = failed | {
        name
        for name, record in recovery.store.load_instances(ours).items()
        if record.departure is not None and record.departure.source == ending.reservation
    }
    if leaving:
        message = reservation_ending(ending.reservation, sorted(leaving), sorted(failed), ending.event)
        failures += run_each(lambda message: notify_once(recovery, message), [message])
    raise_all(f"the end of {ending.reservation} could not be announced to every instance", failures)
    return "" if leaving else f"no instance of ours leaves with {ending.reservation}"


def _compare_with_ec2(recovery: Recovery, record: Instance, hint: Ec2Hint) -> str:
    """Ask EC2 about the instance, and deliver what the record lacks; returns why nothing was delivered, or "".

    Unlike notifications, the answer is neither late nor out of order. A status check counts as impaired here by the
    same rule as in the resync: EC2 itself shows it impaired for some minutes.
    """
    name, now = record.instance_id, recovery.clock()
    status = recovery.actions.describe_ec2_status((name,)).get(name)
    if status is None and not hint.is_terminated:
        return f"an EC2 event names {name}, which EC2 does not know"
    undelivered = (
        tuple(undelivered_ec2_events(record, status, now))
        if status is not None
        else (events.MachineSeen(at=now, state=Ec2InstanceState.TERMINATED),)
    )
    for event in undelivered:
        recovery.handle(name, event)
    return "" if undelivered else f"EC2 shows nothing new of {name} ({hint.sentence})"


def _compare_with_ecs(recovery: Recovery, record: Instance) -> str:
    """Ask ECS about the health of the container instance, and deliver what the record lacks, as for EC2."""
    described = recovery.actions.describe_instance(record.container_instance_id)
    undelivered = tuple(undelivered_reports(record, described[1].health)) if described is not None else ()
    for report in undelivered:
        recovery.handle(record.instance_id, report)
    return "" if undelivered else f"ECS shows nothing new of the health of {record.instance_id}"
