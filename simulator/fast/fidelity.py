"""Fidelity of a simulation: records and checks that a large world omits to run faster.

With reduced fidelity, weeks of thousands of instances are simulated in minutes. The outcome is the same:
`tests/simulator/fast/test_equivalence.py` compares whole transcripts with full and with reduced fidelity.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Checking(StrEnum):
    """When the invariants are checked, and against which records."""

    EVERYTHING = "everything"  # all of them, after each step
    CHANGES = "changes"  # those of changed objects, after each step
    RECORDS = "records"  # those of changed records, after each step; all of them at intervals
    NEVER = "never"  # neither the state of the world nor the writes are checked


@dataclass(frozen=True)
class Fidelity:
    """How much a world records, checks and repeats.

    Attributes:
        remembers: whether transcript, steps, messages to other systems, old attempts and old verdicts are saved.
        checking: when the invariants are checked. All values but EVERYTHING need a `MemoryStore`.
        skips: whether a tick is skipped if its function has certainly no work (`idle_skip`).
        everything_every: number of changing steps between two checks of everything, for `Checking.RECORDS`.
    """

    remembers: bool = True
    checking: Checking = Checking.EVERYTHING
    skips: bool = False
    everything_every: int = 20_000


THOROUGH = Fidelity()
"""Full fidelity, without omissions."""
LARGE = Fidelity(remembers=False, checking=Checking.RECORDS, skips=True, everything_every=100_000)
"""Fidelity of large worlds: skipped ticks, changed records checked."""
UNCHECKED = Fidelity(remembers=False, checking=Checking.NEVER)
"""Fidelity of large worlds whose time is limited (`Costs`): no checks, and each tick runs."""
FASTEST = Fidelity(remembers=False, checking=Checking.NEVER, skips=True)
"""Fidelity of speed measurements: skipped ticks, no checks."""
