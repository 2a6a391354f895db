"""Quiet hours of a run of weeks: reconcile cycles that could only poll a gang that trains are left out.

A running job is polled every other minute, and for weeks the poll finds nothing. A cycle is left out if the gang has
trained for a while, no fault is uncured, no failure follows soon, and no instance has anything due. After `LONGEST` a
cycle runs in any case. It runs in a minute in which the job would have been polled, so later polls come at the same
times as in a run with all cycles (`tests/simulator/goodput/test_quiet_hours.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Protocol

from simulator.lambda_runtime import RECONCILER
from simulator.memory_store.store import MemoryStore
from simulator.world import World

LONGEST = timedelta(minutes=30)
"""Longest time without a reconcile cycle."""
LEFT_OUT = timedelta(minutes=4)
"""Time after a poll from which it is certain that polls were left out."""
BEFORE_S, AFTER_S = 600.0, 3_600.0
"""Seconds before a failure, and after the begin of training, in which every cycle runs."""


class Quiet(Protocol):
    """The training, as far as it decides whether an hour is quiet."""

    def is_quiet(self, before_s: float, after_s: float) -> bool:
        """Return whether nothing has happened for `after_s` seconds and nothing will for `before_s` seconds."""


class QuietHours:
    """Leaves out reconcile cycles of a world that skips idle ticks."""

    def __init__(self, world: World, store: MemoryStore, training: Quiet) -> None:
        self.world, self.store, self.training = world, store, training
        self.left_out = 0
        self._ran_at: datetime | None = None
        if world.idle_skip is None:
            raise ValueError("the world runs every tick")
        self._skips: Callable[[str], bool] = world.idle_skip.may_skip
        world.idle_skip.may_skip = self.may_skip  # type: ignore[method-assign]

    def may_skip(self, name: str) -> bool:
        """Return whether a tick of the function is left out."""
        if name != RECONCILER:
            return self._skips(name)
        if self._is_quiet():
            self.left_out += 1
            return True
        skips = self._skips(name)
        if not skips and self._polls():
            self._ran_at = self.world.timeline.now
        return skips

    def _polls(self) -> bool:
        """Return whether the job is due, so that the present cycle polls it."""
        due = self.store.jobs.next_due()
        return due is not None and due <= self.world.timeline.now

    def _is_quiet(self) -> bool:
        now, ran_at = self.world.timeline.now, self._ran_at
        if ran_at is None:
            return False
        passed = now - ran_at
        is_poll = passed.total_seconds() % self.world.policy.poll_interval_s == 0
        if not self.training.is_quiet(BEFORE_S, AFTER_S):
            return not is_poll and passed > LEFT_OUT  # the next cycle is that of a poll
        due = self.store.machines.next_due()
        if due is not None and due <= now + LONGEST:
            return False
        return not is_poll or passed < LONGEST
