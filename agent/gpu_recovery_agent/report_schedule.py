"""When the next report is due. Pure: time and luck are arguments.

On time within ten percent, so that a thousand agents that began together do not speak together; at once for what is
urgent, but never in a stream; after a failure later and later, at a random moment of the whole pause.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

JITTER = 0.1
PAUSE_FIRST_S, PAUSE_MAX_S = 1.0, 30.0
"""The longest keeps who was away for two minutes below the 180 s after which an instance is lost."""
URGENT_GAP_S = 3.0
"""Between two reports, at least, whatever is urgent: 100 in five minutes, below the 120 that the API admits."""


@dataclass
class ReportSchedule:
    """`due_at` in the seconds of `now`. `luck` gives numbers from 0 up to 1."""

    interval_s: float
    random: Callable[[], float]
    due_at: float
    failures: int = 0
    sent_at: float | None = None

    def succeeded(self, now: float, next_s: float | None) -> None:
        """After an answer. `next_s` is the server's wish, kept until it has another."""
        self.failures, self.sent_at = 0, now
        self.interval_s = next_s if next_s is not None else self.interval_s
        self.due_at = now + self.interval_s * (1 - JITTER + 2 * JITTER * self.random())

    def failed(self, now: float, retry_after_s: float | None) -> None:
        """After none. What the server asks for is waited whole; otherwise the pause doubles, with full jitter."""
        self.failures, self.sent_at = self.failures + 1, now
        pause = min(PAUSE_FIRST_S * 2.0 ** min(self.failures - 1, 16), PAUSE_MAX_S)
        self.due_at = now + (retry_after_s if retry_after_s is not None else pause * self.random())

    def urgent(self, now: float) -> None:
        """Something must be told at once; while the API is away it waits with the rest."""
        if not self.failures:
            gap = URGENT_GAP_S if self.interval_s > URGENT_GAP_S else self.interval_s
            earliest = now if self.sent_at is None else max(now, self.sent_at + gap)
            self.due_at = min(self.due_at, earliest)
