"""How long a test waits for something that must happen.

The wait ends when the condition is true. So a long limit costs nothing in a good run, and a slow machine fails no test.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

PATIENCE_S = 300.0
"""Limit of one wait, in seconds: minutes more than any wait takes on two cores beside four busy processes."""
PAUSE_MAX_S = 0.2
"""Longest pause between two looks, in seconds. A look at a deployment takes 25 ms of processor time."""


@dataclass
class Pause:
    """Pause between the looks of one wait: short at first, so that a short wait stays short, and then longer."""

    next_s: float = 0.02

    def __call__(self) -> None:
        """Sleep."""
        time.sleep(self.next_s)
        self.next_s = min(1.5 * self.next_s, PAUSE_MAX_S)
