"""Virtual time: what happens next, and when. Nothing here waits; equal times keep the order they were asked in."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

START = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)


class Timeline:
    """A clock that jumps from one thing that happens to the next."""

    def __init__(self, start: datetime = START) -> None:
        self.start = self.now = start
        self._asked = 0
        self._due: list[tuple[datetime, int, Callable[[], None]]] = []

    def clock(self) -> datetime:
        """The virtual time, in the form the loop asks for it."""
        return self.now

    def after(self, seconds: float, happen: Callable[[], None]) -> None:
        """Let `happen` take place `seconds` from now."""
        self._asked += 1
        heapq.heappush(self._due, (self.now + timedelta(seconds=seconds), self._asked, happen))

    def step(self, limit: datetime) -> bool:
        """Let the next thing happen; False, with the clock at `limit`, if nothing does before it."""
        if not self._due or self._due[0][0] > limit:
            self.now = max(self.now, limit)
            return False
        self.now, _, happen = heapq.heappop(self._due)
        happen()
        return True

    def elapsed(self) -> str:
        """The virtual time since the start, as `1:02:03`."""
        return str(timedelta(seconds=round((self.now - self.start).total_seconds())))
