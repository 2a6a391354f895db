"""How long many calls take that share AWS's token bucket."""

from __future__ import annotations

from simulator.goodput.assumptions import Conditions


class TokenBucket:
    """The bucket of ECS for RunTask, StopTask and the like, full at the beginning."""

    def __init__(self, conditions: Conditions) -> None:
        self.burst, self.per_s = conditions.calls_burst, conditions.calls_per_s
        self._tokens, self._at = self.burst, 0.0

    def last(self, calls: int, at_s: float) -> float:
        """When the last of `calls` calls that are begun at `at_s` is taken, if nobody loses a moment."""
        if at_s > self._at:
            self._tokens = min(self.burst, self._tokens + (at_s - self._at) * self.per_s)
            self._at = at_s
        short = calls - self._tokens
        if short <= 0:
            self._tokens -= calls
            return self._at
        self._tokens = 0.0
        self._at += short / self.per_s
        return self._at
