"""Delivery of events by EventBridge: at least once in AWS, and here as badly as a test needs it.

A `Delivery` returns, for one event envelope, the seconds after which the event arrives: one value for each arrival, and
no value for a lost event.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Envelope = Mapping[str, Any]
Delivery = Callable[[Envelope], Sequence[float]]
PROMPT_S = 1.0


def prompt(envelope: Envelope) -> Sequence[float]:
    """Deliver every event once, in order, a second later."""
    return (PROMPT_S,)


def nothing(envelope: Envelope) -> Sequence[float]:
    """Lose every event."""
    return ()


def losing(lost: Callable[[Envelope], bool]) -> Delivery:
    """Return a delivery that loses the events for which `lost` is true and delivers the others once."""
    return lambda envelope: () if lost(envelope) else (PROMPT_S,)


class Unruly:
    """A delivery that loses, duplicates, delays and reorders events, as drawn from one seed.

    lost, doubled, late: the probability of each, from 0 to 1.
    late_max_s:          the upper bound of a delay, in seconds.
    """

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
    """Return whether the event is about a task and, if `last_status` is given, reports that status."""
    about = envelope["detail-type"] == "ECS Task State Change"
    return about and last_status in (None, envelope["detail"]["lastStatus"])
