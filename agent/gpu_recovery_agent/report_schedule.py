"""Decides when the next report is due. Pure: time and random numbers are arguments.

The interval varies by ten percent, so that a thousand agents that started together do not report together. An urgent
report is sent at once, but not sooner than URGENT_GAP_S after the report before it. After each failure the pause
doubles, and the next report is sent at a random moment of the pause.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

JITTER = 0.1
"""Share of the interval by which a regular report may be early or late."""
PAUSE_FIRST_S, PAUSE_MAX_S = 1.0, 30.0
"""Shortest and longest pause after a failure, in seconds. With the longest pause an agent that lost contact for two
minutes reports again within 180 s, after which the server treats the instance as lost.
"""
URGENT_GAP_S = 3.0
"""Shortest time in seconds between a report and an urgent report after it; the interval, if that is shorter.

Three seconds give at most 100 reports in five minutes; the API accepts 120.
"""


@dataclass
class ReportSchedule:
    """When the next report is due: `due_at`, on the same clock as `now`. `random` returns numbers from 0 up to 1."""

    interval_s: float
    random: Callable[[], float]
    due_at: float
    failures: int = 0
    sent_at: float | None = None
    pace_s: float | None = None
    """Longest time in seconds between two reports for now; None: the interval alone decides."""

    def pace(self, now: float, seconds: float | None) -> None:
        """Report at least every `seconds` from now on; None: at the interval. A retry schedule stays."""
        self.pace_s = seconds
        if seconds is not None and not self.failures:
            self.due_at = min(self.due_at, (now if self.sent_at is None else self.sent_at) + seconds)

    def succeeded(self, now: float, next_s: float | None) -> None:
        """Schedule the next report after a response.

        `next_s` is the interval that the server asks for, until it asks again.
        """
        self.failures, self.sent_at = 0, now
        self.interval_s = next_s if next_s is not None else self.interval_s
        self.due_at = now + self.interval_s * (1 - JITTER + 2 * JITTER * self.random())

    def failed(self, now: float, retry_after_s: float | None) -> None:
        """Schedule a retry.

        Wait as long as the server asks; otherwise the pause doubles each time, with full jitter.
        """
        self.failures, self.sent_at = self.failures + 1, now
        pause = min(PAUSE_FIRST_S * 2.0 ** min(self.failures - 1, 16), PAUSE_MAX_S)
        self.due_at = now + (retry_after_s if retry_after_s is not None else pause * self.random())

    def urgent(self, now: float) -> None:
        """Send the next report as soon as allowed. While the API is unreachable the retry schedule stays."""
        if not self.failures:
            gap = min(URGENT_GAP_S, self.interval_s, self.pace_s if self.pace_s is not None else URGENT_GAP_S)
            earliest = now if self.sent_at is None else max(now, self.sent_at + gap)
            self.due_at = min(self.due_at, earliest)
