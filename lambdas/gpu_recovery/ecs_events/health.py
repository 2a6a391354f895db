"""Words about machines from outside, to the instances they are about. Most machines of an account are not ours."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gpu_recovery.core import events
from gpu_recovery.core.health_signals import Ec2InstanceState
from gpu_recovery.recovery import Recovery


@dataclass(frozen=True, slots=True)
class Ec2StateChanged:
    """EC2 says that the machine came to be in `state`. Such words overtake each other: a reason to look, no more."""

    instance_id: str
    state: str


@dataclass(frozen=True, slots=True)
class InstanceHealthEvent:
    """A watcher's word about one instance, as the core takes it."""

    instance_id: str
    event: events.HealthReported | events.DepartureAnnounced


@dataclass(frozen=True, slots=True)
class SkippedNotification:
    """A part of an event that nothing follows from, and why."""

    sentence: str


HealthNotification = Ec2StateChanged | InstanceHealthEvent | SkippedNotification


def deliver(recovery: Recovery, words: Iterable[HealthNotification]) -> tuple[str, ...]:
    """Tell each instance what is said of it; what was passed over, and why, one sentence each."""
    return tuple(sentence for word in words if (sentence := _deliver_one(recovery, word)))


def _deliver_one(recovery: Recovery, word: HealthNotification) -> str:
    """Why the word was passed over; "" if it was told."""
    if isinstance(word, SkippedNotification):
        return word.sentence
    if recovery.store.load_instance(word.instance_id) is None:
        return f"there is no record of {word.instance_id}"
    event = word.event if isinstance(word, InstanceHealthEvent) else _current_state_event(recovery, word)
    if event is None:
        return f"EC2 speaks of {word.instance_id} and does not know it"
    recovery.handle(word.instance_id, event)
    return ""


def _current_state_event(recovery: Recovery, word: Ec2StateChanged) -> events.MachineSeen | None:
    """What a fresh look shows: it is neither late nor out of order, as EC2's words are.

    Only `terminated` is never taken back, so it stands where EC2 has forgotten the machine meanwhile.
    """
    now = recovery.clock()
    machine = recovery.actions.describe_ec2((word.instance_id,)).get(word.instance_id)
    if machine is not None:
        return events.MachineSeen(at=now, state=machine.state)
    is_over = word.state == Ec2InstanceState.TERMINATED
    return events.MachineSeen(at=now, state=Ec2InstanceState.TERMINATED) if is_over else None
