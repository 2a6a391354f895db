"""Run time estimates from earlier jobs of the same kind.

A kind is a recurring job of a user: the same workload with as many instances and GPUs. A few run times of each kind are
saved, only of jobs that completed. A user's time limit is an upper bound of both estimates.
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


class UsualRunTime(NamedTuple):
    """The usual run time of a kind, in whole seconds: half of its jobs did not take longer than the median.

    Nine of ten jobs did not take longer than `p90_s`, the 90th percentile.
    """

    median_s: int
    p90_s: int


class RunTime(NamedTuple):
    """The run time in seconds of a completed job, over all its attempts, with its kind and slot."""

    kind: str
    slot: int
    seconds: int


def slot_of(job_id: str) -> int:
    """Return the slot for the run time of a job. A repeated write uses the same slot."""
    return hashlib.sha256(job_id.encode()).digest()[0] % SLOTS


def usual_run_time(times: Collection[float]) -> UsualRunTime | None:
    """Return the usual run time of these run times, in seconds; None if too few are known."""
    if len(times) < LEAST:
        return None
    ascending = sorted(times)

    def bound(tenths: int) -> int:
        count = (tenths * len(ascending) + 9) // 10  # rounded up
        return int(-(-ascending[count - 1] // 1))

    return UsualRunTime(bound(5), bound(9))
