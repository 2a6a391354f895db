"""One trace under one discipline: who waited how long."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import Protocol

from .lines import TraceLine
from .trace import TraceJob


class Discipline(Protocol):
    """A way to serve a line, with the cluster it serves."""

    name: str

    def start(self, job: TraceJob, now: float) -> None:
        """Take what the job uses."""

    def end(self, job: TraceJob) -> None:
        """Give it back."""

    def serve(self, line: TraceLine, now: float, start: Callable[[TraceJob], None]) -> None:
        """Start whoever may; `start` takes the job out of the line and what it uses from the cluster."""


def waits_of(jobs: Sequence[TraceJob], discipline: Discipline) -> list[float]:
    """Seconds that each job waited, by its number."""
    line = TraceLine(jobs)
    waited = [0.0] * len(jobs)
    ends: list[tuple[float, int]] = []
    now = 0.0

    def start(job: TraceJob) -> None:
        line.leave(job)
        discipline.start(job, now)
        waited[job.number] = now - job.at
        heapq.heappush(ends, (now + job.runs_s, job.number))

    coming = iter(jobs)
    next_job = next(coming, None)
    while next_job is not None or ends:
        now = min(next_job.at if next_job else ends[0][0], ends[0][0] if ends else now if not next_job else next_job.at)
        while ends and ends[0][0] <= now:
            discipline.end(jobs[heapq.heappop(ends)[1]])
        while next_job is not None and next_job.at <= now:
            line.join(next_job)
            next_job = next(coming, None)
        if line.length:
            discipline.serve(line, now, start)
    return waited
