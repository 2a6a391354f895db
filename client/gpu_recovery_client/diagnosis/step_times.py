"""Step times of a process: the intervals between two changes of its progress, without the first and the pauses.

The server derives from them how long the process may stay without progress before its job counts as hung. The first
intervals of a process have compilation, caches and the start of its data loaders in them, so they are left out.
"""

from __future__ import annotations

from typing import Any

WARM_UP = 5
"""First intervals of a process that do not count."""
RECENT_MAX = 64
"""Intervals of which the median is reported, the newest."""


class StepTimes:
    """The intervals of one process. Its memory and the cost of `add` do not grow with the number of steps.

    slowest_s: the longest interval since the warm-up, in seconds.
    """

    def __init__(self) -> None:
        self._seen = 0
        self._recent: list[float] = []
        self.slowest_s = 0.0

    @property
    def count(self) -> int:
        """Return the number of intervals after the warm-up."""
        return max(0, self._seen - WARM_UP)

    def add(self, seconds: float) -> None:
        """Record one interval."""
        self._seen += 1
        number = self._seen - WARM_UP - 1
        if number < 0:
            return
        if len(self._recent) < RECENT_MAX:
            self._recent.append(seconds)
        else:
            self._recent[number % RECENT_MAX] = seconds
        self.slowest_s = max(self.slowest_s, seconds)

    def fields(self) -> dict[str, Any]:
        """Return the fields of a progress report; empty before the end of the warm-up."""
        recent = sorted(self._recent)  # a copy: another thread may add an interval meanwhile
        if not recent:
            return {}
        return {
            "steps": self.count,
            "step_s": round(recent[len(recent) // 2], 3),
            "slowest_s": round(self.slowest_s, 3),
        }
