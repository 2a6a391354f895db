"""Virtual time: what happens next, and when. Nothing here waits; equal times keep the order they were asked in."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

START = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)


class Due(NamedTuple):
    """Something that is to happen: when, the how manyth that was asked for, and what."""

    at: datetime
    number: int
    happen: Callable[..., object]
    about: tuple[Any, ...]


_due = Due._make
"""Without the naming of arguments, which takes as long as the rest."""


class VirtualClock:
    """A clock that jumps from one thing that happens to the next."""

    def __init__(self, start: datetime = START) -> None:
        self.start = self.now = start
        self._asked = self.happened = 0
        self.lag = 0.0
        """Seconds by which everything is later that is asked for now: what the invocation under way has spent."""
        self.due: list[Due] = []

    def clock(self) -> datetime:
        """The virtual time, in the form the loop asks for it."""
        return self.now

    def after(self, seconds: float, happen: Callable[..., object], *about: Any) -> None:
        """Let `happen(*about)` take place `seconds` from now.

        Give ids and other values that never change, not the things they stand for: a world can then be copied.
        """
        self._asked += 1
        at = self.now + timedelta(0, seconds + self.lag)
        heapq.heappush(self.due, _due((at, self._asked, happen, about)))

    def step(self, limit: datetime) -> bool:
        """Let the next thing happen; False, with the clock at `limit`, if nothing does before it."""
        if not self.due or self.due[0][0] > limit:
            self.now = max(self.now, limit)
            return False
        self.now, _, happen, about = heapq.heappop(self.due)
        self.happened += 1
        happen(*about)
        return True

    def elapsed(self) -> str:
        """The virtual time since the start, as `1:02:03`."""
        return str(timedelta(seconds=round((self.now - self.start).total_seconds())))
