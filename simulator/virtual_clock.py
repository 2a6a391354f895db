"""The virtual clock: a queue of what is due, in virtual time.

Equal times keep the order in which they were scheduled.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

START = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)


class Due(NamedTuple):
    """Something that is scheduled.

    at:     when.
    number: its number in the order of scheduling.
    happen: what is called.
    about:  the arguments of `happen`.
    """

    at: datetime
    number: int
    happen: Callable[..., object]
    about: tuple[Any, ...]


_due = Due._make
"""Builds a `Due` from a tuple. Keyword arguments would double the time of `VirtualClock.after`."""


class VirtualClock:
    """A clock that jumps from one scheduled time to the next. Nothing waits in real time."""

    def __init__(self, start: datetime = START) -> None:
        self.start = self.now = start
        self._asked = self.happened = 0
        self.lag = 0.0
        """Seconds added to each delay that is scheduled now: the time that the invocation under way has spent."""
        self.due: list[Due] = []

    def clock(self) -> datetime:
        """Return the virtual time. The product's loop takes this method as its clock."""
        return self.now

    def after(self, seconds: float, happen: Callable[..., object], *about: Any) -> None:
        """Schedule `happen(*about)` for `seconds` from now.

        Give ids and other immutable values, not the objects that they name: then a world can be copied.
        """
        self._asked += 1
        at = self.now + timedelta(0, seconds + self.lag)
        heapq.heappush(self.due, _due((at, self._asked, happen, about)))

    def step(self, limit: datetime) -> bool:
        """Run what is due next.

        Returns:
            False, with the clock at `limit`, if the queue holds nothing that is due up to `limit`.
        """
        if not self.due or self.due[0][0] > limit:
            self.now = max(self.now, limit)
            return False
        self.now, _, happen, about = heapq.heappop(self.due)
        self.happened += 1
        happen(*about)
        return True

    def elapsed(self) -> str:
        """Return the virtual time since the start, as `1:02:03`."""
        return str(timedelta(seconds=round((self.now - self.start).total_seconds())))
