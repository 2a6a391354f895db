"""The fleet's brakes in people's hands, and the count they are reckoned from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gpu_recovery.core.fleet import Fleet, Pause, with_breaker_closed
from gpu_recovery.core.notifications.fleet import breaker_closed
from gpu_recovery.ports.retry import SAVE_ATTEMPTS_MAX, save_with_retry
from gpu_recovery.recovery import Recovery


def pause(recovery: Recovery, by: str, because: str) -> Fleet:
    """The kill switch: no repair begins until somebody unpauses; one that EC2 was asked for takes its course.

    Paused again, for another reason perhaps, it has been paused since the first time.
    """

    def paused(fleet: Fleet) -> Fleet:
        since = fleet.pause.at if fleet.pause is not None else recovery.clock()
        return replace(fleet, pause=Pause(by, because, since))

    return change_fleet(recovery, paused)


def unpause(recovery: Recovery) -> Fleet:
    """Repairs may begin again; what was held asks again at its next look."""
    return change_fleet(recovery, lambda fleet: replace(fleet, pause=None))


def reset_breaker(recovery: Recovery, by: str) -> Fleet:
    """Close the breaker by hand; what was held is checked afresh where its evidence has grown old.

    Operators are told first, because the fleet's record keeps no commands: told afterwards, they would never hear of a
    breaker that was closed by whoever died in between.
    """
    before = recovery.store.load_fleet()
    if before.opened_at is not None:
        recovery.notify(breaker_closed(before, f"reset by {by}"))
    return change_fleet(recovery, with_breaker_closed)


def count(recovery: Recovery, gpu_instances: int) -> None:
    """Keep how many instances with GPUs there are: the budget and the breaker are shares of it."""
    fleet = recovery.store.load_fleet()
    recovery.decision_log.fleet_checked(fleet, recovery.clock())
    if fleet.gpu_instances != gpu_instances:
        change_fleet(recovery, lambda fleet: replace(fleet, gpu_instances=gpu_instances))


def change_fleet(recovery: Recovery, change: Callable[[Fleet], Fleet], attempts_max: int = SAVE_ATTEMPTS_MAX) -> Fleet:
    """Change the record of the fleet limits; returns the record as it is stored. Raises TooManyConflicts."""
    store = recovery.store
    contended = f"refused {attempts_max} times: others write the brakes all the time"
    return save_with_retry(store.load_fleet, change, store.save_fleet, attempts_max, contended)
