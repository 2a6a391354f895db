"""One trace under one discipline: who waited how long."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from gpu_recovery.core.queue.run_time_estimates import slot_of, usual_run_time

from simulator.queue.job_index import TraceQueue
from simulator.queue.job_trace import TraceJob


class Discipline(Protocol):
    """A way to serve a line, with the cluster it serves."""

    name: str

    def start(self, job: TraceJob, now: float) -> None:
        """Take what the job uses."""

    def end(self, job: TraceJob) -> None:
        """Give it back."""

    def serve(self, line: TraceQueue, now: float, start: Callable[[TraceJob], None]) -> None:
        """Start whoever may; `start` takes the job out of the line and what it uses from the cluster."""


class RunTimeHistory:
    """How long jobs of a kind ran that have ended, as the production code keeps it: of whom, of which size."""

    def __init__(self) -> None:
        self._run_times: dict[tuple[str, int], dict[int, float]] = {}

    def ended(self, job: TraceJob) -> None:
        """The job has come to its end."""
        self._run_times.setdefault((job.whose, job.size), {})[slot_of(str(job.number))] = job.runs_s

    def estimated(self, job: TraceJob) -> TraceJob:
        """The job with the estimate that there is of its kind, whatever its user said."""
        return replace(job, estimate_s=usual_run_time(self._run_times.get((job.whose, job.size), {}).values()))


def waits_of(jobs: Sequence[TraceJob], discipline: Discipline, past: RunTimeHistory | None = None) -> list[float]:
    """Seconds that each job waited, by its number. `past`: how long those before it ran is all that is known of one."""
    line = TraceQueue(jobs)
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
            ended = jobs[heapq.heappop(ends)[1]]
            discipline.end(ended)
            if past is not None:
                past.ended(ended)
        while next_job is not None and next_job.at <= now:
            line.join(next_job if past is None else past.estimated(next_job))
            next_job = next(coming, None)
        if line.length:
            discipline.serve(line, now, start)
    return waited
