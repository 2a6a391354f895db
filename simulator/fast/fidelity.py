"""What a large world leaves out, so that weeks of thousands of machines are simulated in minutes.

Nothing here changes what happens: a test compares whole transcripts with and without.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Checking(StrEnum):
    """When the invariants are asked."""

    EVERYTHING = "everything"  # of all there is, after each step
    CHANGES = "changes"  # of what has changed since, after each step
    RECORDS = "records"  # of the records that have changed, after each step; of everything, now and then
    NEVER = "never"  # nobody looks, neither at the state of the world nor over the shoulder of those who write


@dataclass(frozen=True)
class Fidelity:
    """How much is remembered, checked and repeated.

    remembers: a transcript, every step, every message to other systems, every old attempt and verdict.
    checking:  when the invariants are asked. Other than by EVERYTHING they are asked of a `MemoryStore` only.
    skips:     ticks of the clock on which a function would certainly find nothing to do are passed over, see `idling`.
    everything_every: with RECORDS, after how many steps that changed something everything is asked.
    """

    remembers: bool = True
    checking: Checking = Checking.EVERYTHING
    skips: bool = False
    everything_every: int = 20_000


THOROUGH = Fidelity()
LARGE = Fidelity(remembers=False, checking=Checking.RECORDS, skips=True, everything_every=100_000)
FASTEST = Fidelity(remembers=False, checking=Checking.NEVER, skips=True)
