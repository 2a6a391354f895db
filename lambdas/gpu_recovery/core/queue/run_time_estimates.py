"""Run time estimates for jobs without a time limit, from earlier jobs of the same kind.

A kind is a recurring job of a user: the same workload with as many instances and GPUs. A few run times of each kind are
saved, only of jobs that completed. Nine of ten jobs did not take longer than the estimate.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from typing import NamedTuple

SLOTS = 16
"""Number of run times saved for each kind. The job id selects the slot to replace, so a write needs no read."""
LEAST = 4
"""Lowest number of run times for an estimate."""


class JobKind(NamedTuple):
    """The key by which run times are saved."""

    user: str
    workload: str
    nodes: int
    gpus: int

    @property
    def text(self) -> str:
        """Return the key as one string. The name of a user may contain slashes."""
        return f"{self.user}/{self.workload}/{self.nodes}x{self.gpus}"


class RunTime(NamedTuple):
    """The run time in seconds of a completed job, over all its attempts, with its kind and slot."""

    kind: str
    slot: int
    seconds: int


def slot_of(job_id: str) -> int:
    """Return the slot for the run time of a job. A repeated write uses the same slot."""
    return hashlib.sha256(job_id.encode()).digest()[0] % SLOTS


def usual_run_time(times: Collection[float]) -> int | None:
    """Return the time in seconds that nine of ten run times did not exceed; None if too few are known."""
    if len(times) < LEAST:
        return None
    count = (9 * len(times) + 9) // 10  # nine of ten, rounded up
    return int(-(-sorted(times)[count - 1] // 1))
