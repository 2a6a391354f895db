"""How long whoever asks will wait, and so how long a function may go on beginning what follows.

What is begun is finished. What is not stays in its record, free for the reconciler's next round, which has time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic


@dataclass
class Patience:
    """`seconds` from the last `begins`; `now` counts them."""

    seconds: float
    now: Callable[[], float] = monotonic
    began_at: float = 0.0

    def begins(self) -> None:
        """Somebody has asked."""
        self.began_at = self.now()

    def lasts(self) -> bool:
        """Whether anything more may be begun."""
        return self.now() - self.began_at < self.seconds
