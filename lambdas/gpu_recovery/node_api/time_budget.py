"""Time budget of one API call: limits the time in which a function begins commands.

A command that was begun is finished. The others stay in their record, due at once, for the command
executor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic


@dataclass
class TimeBudget:
    """A budget of `seconds` from the last `start`.

    now:        a clock in seconds.
    started_at: the time of the last `start`.
    """

    seconds: float
    now: Callable[[], float] = monotonic
    started_at: float = 0.0

    def start(self) -> None:
        """Start the budget for a new call."""
        self.started_at = self.now()

    def has_time_left(self) -> bool:
        """Return whether another command may be begun."""
        return self.now() - self.started_at < self.seconds
