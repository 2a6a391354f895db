"""What follows from a report."""

from __future__ import annotations

from dataclasses import dataclass

from .core.errors import RecoveryError
from .core.heartbeat import Order, Report, RunningRank
from .recovery import Recovery


class SequenceStale(RecoveryError):
    """A newer report of this boot was heard before: `last`."""

    def __init__(self, last: int) -> None:
        super().__init__(f"report {last} of this boot was heard before")
        self.last = last


class TooMany(RecoveryError):
    """More reports than anybody needs; the next is welcome after `retry_after_s`."""

    def __init__(self, retry_after_s: int) -> None:
        super().__init__(f"too many reports: the next is welcome in {retry_after_s} s")
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True)
class Answer:
    """What the agent is told."""

    updated: int = 0
    revived: int = 0
    wants_inventory: bool = False
    orders: tuple[Order, ...] = ()
    refused: tuple[tuple[RunningRank, str], ...] = ()


def hear(recovery: Recovery, report: Report) -> Answer:
    """Enter what the instance reports, and what it is to do."""
    return Answer()
