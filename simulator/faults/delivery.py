"""How EventBridge delivers: at least once in life, and here as badly as a test wants it.

A delivery answers, for one envelope, after how many seconds it arrives: once for each arrival, never for a lost one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Envelope = Mapping[str, Any]
Delivery = Callable[[Envelope], Sequence[float]]
PROMPT_S = 1.0


def prompt(envelope: Envelope) -> Sequence[float]:
    """Every event once, in order, a second later."""
    return (PROMPT_S,)


def nothing(envelope: Envelope) -> Sequence[float]:
    """Every event is lost."""
    return ()


def losing(lost: Callable[[Envelope], bool]) -> Delivery:
    """Every event once, but those that are `lost`."""
    return lambda envelope: () if lost(envelope) else (PROMPT_S,)


class Unruly:
    """Events that are lost, doubled, late and out of order, as one seed has it."""

    def __init__(
        self, seed: int, *, lost: float = 0.1, doubled: float = 0.3, late: float = 0.5, late_max_s: float = 240
    ):
        self._random = random.Random(seed)
        self.lost, self.doubled, self.late, self.late_max_s = lost, doubled, late, late_max_s

    def __call__(self, envelope: Envelope) -> Sequence[float]:
        draw = self._random
        if draw.random() < self.lost:
            return ()
        copies = 2 if draw.random() < self.doubled else 1
        return [draw.uniform(0, self.late_max_s) if draw.random() < self.late else PROMPT_S for _ in range(copies)]


def is_task(envelope: Envelope, last_status: str | None = None) -> bool:
    """Whether the event is about a task, and about it in `last_status` if that is given."""
    about = envelope["detail-type"] == "ECS Task State Change"
    return about and last_status in (None, envelope["detail"]["lastStatus"])
