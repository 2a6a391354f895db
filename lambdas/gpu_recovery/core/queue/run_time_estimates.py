"""How long jobs of a kind have run: what is taken for the run time of one whose user names no limit.

A kind is what a user does again and again: the same workload on as many instances with as many GPUs. Of each kind a few
times are kept, those of jobs that came to their end; nine of ten did not take longer than the estimate.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from typing import NamedTuple

SLOTS = 16
"""So many times are kept of a kind. A job's id says which of them it replaces, so that nothing is read to write it."""
LEAST = 4
"""Fewer times say nothing."""


class JobKind(NamedTuple):
    """What run times are kept by."""

    user: str
    workload: str
    nodes: int
    gpus: int

    @property
    def text(self) -> str:
        """The same in one word; a user's name may have slashes in it."""
        return f"{self.user}/{self.workload}/{self.nodes}x{self.gpus}"


class RunTime(NamedTuple):
    """One job of a kind has come to its end: its slot, and for how long it ran, all attempts together."""

    kind: str
    slot: int
    seconds: int


def slot_of(job_id: str) -> int:
    """Which slot of its kind a job's time is kept in: the same each time it is written."""
    return hashlib.sha256(job_id.encode()).digest()[0] % SLOTS


def usual_run_time(times: Collection[float]) -> int | None:
    """The time in seconds that nine of ten did not exceed; None where too few are known."""
    if len(times) < LEAST:
        return None
    so_many = (9 * len(times) + 9) // 10  # nine of ten, rounded up
    return int(-(-sorted(times)[so_many - 1] // 1))
