"""How long whoever asks will wait, and so how long a function may go on beginning what follows.

What is begun is finished. What is not stays in its record, free for the reconciler's next round, which has time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic


@dataclass
class TimeBudget:
    """`seconds` from the last `begins`; `now` counts them."""

    seconds: float
    now: Callable[[], float] = monotonic
    started_at: float = 0.0

    def start(self) -> None:
        """Somebody has asked."""
        self.started_at = self.now()

    def has_time_left(self) -> bool:
        """Whether anything more may be begun."""
        return self.now() - self.started_at < self.seconds
