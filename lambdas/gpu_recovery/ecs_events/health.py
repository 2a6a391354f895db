"""Deliver notifications of health sources to the instances that they are about.

Unknown instances are skipped: most EC2 instances of an account are not part of the cluster.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gpu_recovery.core import events
from gpu_recovery.core.health_signals import Ec2InstanceState
from gpu_recovery.recovery import Recovery


@dataclass(frozen=True, slots=True)
class Ec2StateChanged:
    """EC2 reports that an instance reached `state`.

    These notifications overtake each other. So each is only a reason to ask EC2 for the present state.
    """

    instance_id: str
    state: str


@dataclass(frozen=True, slots=True)
class InstanceHealthEvent:
    """A report of a health source about one instance, as an event of the core."""

    instance_id: str
    event: events.HealthReported | events.DepartureAnnounced


@dataclass(frozen=True, slots=True)
class SkippedNotification:
    """A part of a notification that has no consequence, with the reason."""

    sentence: str


HealthNotification = Ec2StateChanged | InstanceHealthEvent | SkippedNotification


def deliver(recovery: Recovery, notifications: Iterable[HealthNotification]) -> tuple[str, ...]:
    """Deliver each notification to its instance.

    Returns:
        One sentence for each notification that was skipped.
    """
    return tuple(sentence for notification in notifications if (sentence := _deliver_one(recovery, notification)))


def _deliver_one(recovery: Recovery, notification: HealthNotification) -> str:
    """Deliver one notification; returns why it was skipped, "" if it was delivered."""
    if isinstance(notification, SkippedNotification):
        return notification.sentence
    if recovery.store.load_instance(notification.instance_id) is None:
        return f"there is no record of {notification.instance_id}"
    event = (
        notification.event
        if isinstance(notification, InstanceHealthEvent)
        else _current_state_event(recovery, notification)
    )
    if event is None:
        return f"EC2 speaks of {notification.instance_id} and does not know it"
    recovery.handle(notification.instance_id, event)
    return ""


def _current_state_event(recovery: Recovery, notification: Ec2StateChanged) -> events.MachineSeen | None:
    """Ask EC2 for the present state of the instance; None if EC2 does not know the instance.

    Unlike the notifications, the answer is neither late nor out of order. `terminated` is final, so it counts even if
    EC2 no longer knows the instance.
    """
    now = recovery.clock()
    instance = recovery.actions.describe_ec2((notification.instance_id,)).get(notification.instance_id)
    if instance is not None:
        return events.MachineSeen(at=now, state=instance.state)
    is_over = notification.state == Ec2InstanceState.TERMINATED
    return events.MachineSeen(at=now, state=Ec2InstanceState.TERMINATED) if is_over else None
