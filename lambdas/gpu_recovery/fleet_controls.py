"""Fleet controls: pause switch, reset of the circuit breaker, and the count of GPU instances."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gpu_recovery.core.fleet import Fleet, Pause, with_breaker_closed
from gpu_recovery.core.notifications.fleet import breaker_closed
from gpu_recovery.ports.retry import SAVE_ATTEMPTS_MAX, save_with_retry
from gpu_recovery.recovery import Recovery


def pause(recovery: Recovery, by: str, because: str) -> Fleet:
    """Pause all repairs until `unpause` is called. A reboot or replacement that EC2 was asked for continues.

    A second pause replaces name and reason and keeps the time of the first.

    Args:
        by: who pauses the repairs.
        because: the reason, as operators read it.
    """

    def paused(fleet: Fleet) -> Fleet:
        since = fleet.pause.at if fleet.pause is not None else recovery.clock()
        return replace(fleet, pause=Pause(by, because, since))

    return change_fleet(recovery, paused)


def unpause(recovery: Recovery) -> Fleet:
    """Permit repairs again. A repair that was held tries again at its next poll."""
    return change_fleet(recovery, lambda fleet: replace(fleet, pause=None))


def reset_breaker(recovery: Recovery, by: str) -> Fleet:
    """Close the circuit breaker on behalf of an operator.

    A repair that was held is checked again if its evidence is old. Operators are notified before the write, because the
    fleet record has no pending commands: a function killed between a write and a later notification would lose it.
    """
    before = recovery.store.load_fleet()
    if before.opened_at is not None:
        recovery.notify(breaker_closed(before, f"reset by {by}"))
    return change_fleet(recovery, with_breaker_closed)


def save_gpu_instance_count(recovery: Recovery, gpu_instances: int) -> Fleet:
    """Save the number of GPU instances if it has changed, log the fleet limits and return them.

    The repair budget and the limit of the circuit breaker are shares of this number.
    """
    fleet = recovery.store.load_fleet()
    recovery.decision_log.fleet_checked(fleet, recovery.clock())
    if fleet.gpu_instances == gpu_instances and fleet.is_counted:
        return fleet
    return change_fleet(recovery, lambda fleet: replace(fleet, gpu_instances=gpu_instances, counted=True))


def change_fleet(recovery: Recovery, change: Callable[[Fleet], Fleet], attempts_max: int = SAVE_ATTEMPTS_MAX) -> Fleet:
    """Change the fleet record with `change`.

    Returns:
        The record as it is stored.

    Raises:
        TooManyConflicts: other writers saved the record at each of `attempts_max` tries.
    """
    store = recovery.store
    contended = f"refused {attempts_max} times: other functions write the fleet limits at the same time"
    return save_with_retry(store.load_fleet, change, store.save_fleet, attempts_max, contended)
