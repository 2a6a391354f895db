"""Token bucket: how long the rate limit of the ECS API delays many calls."""

from __future__ import annotations

from simulator.goodput.assumptions import Conditions


class TokenBucket:
    """Token bucket of ECS for RunTask, StopTask and the like. The bucket is full at the beginning."""

    def __init__(self, conditions: Conditions) -> None:
        self.burst, self.per_s = conditions.calls_burst, conditions.calls_per_s
        self._tokens, self._at = self.burst, 0.0

    def last(self, calls: int, at_s: float) -> float:
        """Return when ECS accepts the last of `calls` calls that are sent at `at_s` without delay.

        Times are seconds since the bucket was full.
        """
        if at_s > self._at:
            self._tokens = min(self.burst, self._tokens + (at_s - self._at) * self.per_s)
            self._at = at_s
        missing = calls - self._tokens
        if missing <= 0:
            self._tokens -= calls
            return self._at
        self._tokens = 0.0
        self._at += missing / self.per_s
        return self._at
