"""Words about machines from outside, to the instances they are about. Most machines of an account are not ours."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gpu_recovery.core import events
from gpu_recovery.core.health_signals import MachineState
from gpu_recovery.recovery import Recovery


@dataclass(frozen=True, slots=True)
class MachineMoved:
    """EC2 says that the machine came to be in `state`. Such words overtake each other: a reason to look, no more."""

    instance_id: str
    state: str


@dataclass(frozen=True, slots=True)
class Warned:
    """A watcher's word about one instance, as the core takes it."""

    instance_id: str
    event: events.HealthReported | events.DepartureAnnounced


@dataclass(frozen=True, slots=True)
class PassedOver:
    """A part of an event that nothing follows from, and why."""

    sentence: str


Word = MachineMoved | Warned | PassedOver


def hear(recovery: Recovery, words: Iterable[Word]) -> tuple[str, ...]:
    """Tell each instance what is said of it; what was passed over, and why, one sentence each."""
    return tuple(sentence for word in words if (sentence := _hear(recovery, word)))


def _hear(recovery: Recovery, word: Word) -> str:
    """Why the word was passed over; "" if it was told."""
    if isinstance(word, PassedOver):
        return word.sentence
    if recovery.store.load_instance(word.instance_id) is None:
        return f"there is no record of {word.instance_id}"
    event = word.event if isinstance(word, Warned) else _seen(recovery, word)
    if event is None:
        return f"EC2 speaks of {word.instance_id} and does not know it"
    recovery.tell(word.instance_id, event)
    return ""


def _seen(recovery: Recovery, word: MachineMoved) -> events.MachineSeen | None:
    """What a fresh look shows: it is neither late nor out of order, as EC2's words are.

    Only `terminated` is never taken back, so it stands where EC2 has forgotten the machine meanwhile.
    """
    now = recovery.clock()
    machine = recovery.actions.machines((word.instance_id,)).get(word.instance_id)
    if machine is not None:
        return events.MachineSeen(at=now, state=machine.state)
    is_over = word.state == MachineState.TERMINATED
    return events.MachineSeen(at=now, state=MachineState.TERMINATED) if is_over else None
