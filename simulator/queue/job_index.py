"""Job index of a replay: the queued jobs by size in order of arrival, and the first of a size that ends in time."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence

from gpu_recovery.core.queue.backfill import RunTimeBound

from simulator.queue.job_trace import TraceJob

NOT_QUEUED = float("inf")
"""Estimate of a job that is not in the queue."""
UNKNOWN = 1e300
"""Estimate of a queued job that has none. The job never ends in time."""


class SizeQueue:
    """The queued jobs that need the same number of GPUs.

    For each bound of a run time, a tree of minima finds the first job that ends in time. Every job of the size in the
    trace is a leaf. A leaf of a job that is not queued has the bound NOT_QUEUED.
    """

    def __init__(self, jobs: Sequence[TraceJob]) -> None:
        self.size = jobs[0].size
        self._jobs = list(jobs)
        self._leaf_of = {job.number: leaf for leaf, job in enumerate(jobs)}
        self._width = 1 << (len(jobs) - 1).bit_length()
        self._trees = {bound: [NOT_QUEUED] * (2 * self._width) for bound in RunTimeBound}

    def join(self, job: TraceJob) -> None:
        """Add the job, perhaps with an estimate that the job did not have when the index was built."""
        self._jobs[self._leaf_of[job.number]] = job
        for bound in RunTimeBound:
            seconds = job.bounded(bound)
            self._set(bound, job, UNKNOWN if seconds is None else seconds)

    def leave(self, job: TraceJob) -> None:
        """Remove the job, because it starts."""
        for bound in RunTimeBound:
            self._set(bound, job, NOT_QUEUED)

    def first(self, within_s: float = UNKNOWN, bound: RunTimeBound = RunTimeBound.LIMIT) -> TraceJob | None:
        """Return the first queued job whose bound is at most `within_s` seconds; by default, the first of all."""
        minima, node = self._trees[bound], 1
        if minima[1] > within_s:
            return None
        while node < self._width:
            node *= 2
            if minima[node] > within_s:
                node += 1
        return self._jobs[node - self._width]

    def _set(self, bound: RunTimeBound, job: TraceJob, value: float) -> None:
        minima, node = self._trees[bound], self._leaf_of[job.number] + self._width
        minima[node] = value
        while node > 1:
            node //= 2
            smaller = min(minima[2 * node], minima[2 * node + 1])
            if minima[node] == smaller:
                return
            minima[node] = smaller


class TraceQueue:
    """All queued jobs, in order of arrival."""

    def __init__(self, jobs: Sequence[TraceJob], by_owner: bool = False) -> None:
        """Index the jobs of a trace by size; with `by_owner`, by size and owner."""
        by_key: dict[tuple[int, str], list[TraceJob]] = {}
        for job in jobs:
            by_key.setdefault((job.size, job.whose if by_owner else ""), []).append(job)
        self._by_owner = by_owner
        self._size_queues = {key: SizeQueue(size_jobs) for key, size_jobs in sorted(by_key.items())}
        self._queued: list[int] = []
        self._jobs = {job.number: job for job in jobs}
        self.length = 0

    def _of(self, job: TraceJob) -> SizeQueue:
        return self._size_queues[job.size, job.whose if self._by_owner else ""]

    def join(self, job: TraceJob) -> None:
        """Add the job."""
        self._of(job).join(job)
        self._jobs[job.number] = job
        insort(self._queued, job.number)
        self.length += 1

    def leave(self, job: TraceJob) -> None:
        """Remove the job, because it starts."""
        self._of(job).leave(job)
        del self._queued[bisect_left(self._queued, job.number)]
        self.length -= 1

    def head(self) -> TraceJob | None:
        """Return the first job of the queue; None if the queue is empty."""
        heads = (size_queue.first() for size_queue in self._size_queues.values())
        return min((job for job in heads if job is not None), key=lambda job: job.number, default=None)

    def first_jobs(self, most: int) -> list[TraceJob]:
        """Return the first queued jobs, at most `most`."""
        return [self._jobs[number] for number in self._queued[:most]]

    def sizes(self) -> Iterator[SizeQueue]:
        """Return the queues of each size, and of each owner if they are separate, the smallest size first."""
        return iter(self._size_queues.values())
