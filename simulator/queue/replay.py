"""Replay of a job trace under a queue discipline: how long each job waits."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from gpu_recovery.core.queue.release_forecast import NEVER
from gpu_recovery.core.queue.run_time_estimates import slot_of, usual_run_time

from simulator.queue.job_index import TraceQueue
from simulator.queue.job_trace import TraceJob


class Discipline(Protocol):
    """A queue discipline with the cluster that it serves."""

    name: str
    by_owner: bool  # whether the queue is indexed by owner too

    def start(self, job: TraceJob, now: float) -> None:
        """Take the GPUs of the job."""

    def end(self, job: TraceJob) -> None:
        """Free the GPUs of the job."""

    def serve(self, queue: TraceQueue, now: float, start: Callable[[TraceJob], None]) -> None:
        """Start every job that may start now.

        Args:
            queue: the queued jobs.
            now: seconds since the beginning of the replay.
            start: takes a job out of the queue and its GPUs from the cluster.
        """


class RunTimeHistory:
    """Run times of ended jobs by owner and size, as the production code records them."""

    def __init__(self) -> None:
        self._run_times: dict[tuple[str, int], dict[int, float]] = {}

    def ended(self, job: TraceJob) -> None:
        """Record the run time of a job that ended."""
        self._run_times.setdefault((job.whose, job.size), {})[slot_of(str(job.number))] = job.runs_s

    def estimated(self, job: TraceJob) -> TraceJob:
        """Return the job with the run times of jobs of the same owner and size. Its user's estimate bounds them."""
        usual = usual_run_time(self._run_times.get((job.whose, job.size), {}).values())
        if usual is None:
            return job
        limit_s = NEVER if job.estimate_s is None else job.estimate_s
        return replace(job, median_s=min(limit_s, usual.median_s), p90_s=min(limit_s, usual.p90_s))


def waits_of(jobs: Sequence[TraceJob], discipline: Discipline, history: RunTimeHistory | None = None) -> list[float]:
    """Return the seconds that each job waits, by the number of the job.

    Args:
        jobs: the jobs of the trace in order of arrival.
        discipline: the discipline, with an empty cluster.
        history: if given, the run times of ended jobs are estimates too.
    """
    queue = TraceQueue(jobs, discipline.by_owner)
    waited = [0.0] * len(jobs)
    ends: list[tuple[float, int]] = []
    now = 0.0

    def start(job: TraceJob) -> None:
        queue.leave(job)
        discipline.start(job, now)
        waited[job.number] = now - job.at
        heapq.heappush(ends, (now + job.runs_s, job.number))

    arrivals = iter(jobs)
    next_job = next(arrivals, None)
    while next_job is not None or ends:
        now = min(next_job.at if next_job else ends[0][0], ends[0][0] if ends else now if not next_job else next_job.at)
        while ends and ends[0][0] <= now:
            ended = jobs[heapq.heappop(ends)[1]]
            discipline.end(ended)
            if history is not None:
                history.ended(ended)
        while next_job is not None and next_job.at <= now:
            queue.join(next_job if history is None else history.estimated(next_job))
            next_job = next(arrivals, None)
        if queue.length:
            discipline.serve(queue, now, start)
    return waited
