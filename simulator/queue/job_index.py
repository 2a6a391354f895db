"""Job index of a replay: the queued jobs by size in order of arrival, and the first of a size that ends in time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from simulator.queue.job_trace import TraceJob

NOT_QUEUED = float("inf")
"""Estimate of a job that is not in the queue."""
UNKNOWN = 1e300
"""Estimate of a queued job that has none. The job never ends in time."""


class SizeQueue:
    """The queued jobs that need the same number of GPUs.

    A tree of minima over their estimates finds the first job that ends in time. Every job of the size in the trace is a
    leaf. A leaf of a job that is not queued has the estimate NOT_QUEUED.
    """

    def __init__(self, jobs: Sequence[TraceJob]) -> None:
        self.size = jobs[0].size
        self._jobs = list(jobs)
        self._leaf_of = {job.number: leaf for leaf, job in enumerate(jobs)}
        self._width = 1 << (len(jobs) - 1).bit_length()
        self._minima = [NOT_QUEUED] * (2 * self._width)

    def join(self, job: TraceJob) -> None:
        """Add the job, perhaps with an estimate that the job did not have when the index was built."""
        self._jobs[self._leaf_of[job.number]] = job
        self._set(job, UNKNOWN if job.estimate_s is None else job.estimate_s)

    def leave(self, job: TraceJob) -> None:
        """Remove the job, because it starts."""
        self._set(job, NOT_QUEUED)

    def first(self, within_s: float = UNKNOWN) -> TraceJob | None:
        """Return the first queued job with an estimate of at most `within_s` seconds; by default, the first of all."""
        minima, node = self._minima, 1
        if minima[1] > within_s:
            return None
        while node < self._width:
            node *= 2
            if minima[node] > within_s:
                node += 1
        return self._jobs[node - self._width]

    def _set(self, job: TraceJob, value: float) -> None:
        minima, node = self._minima, self._leaf_of[job.number] + self._width
        minima[node] = value
        while node > 1:
            node //= 2
            smaller = min(minima[2 * node], minima[2 * node + 1])
            if minima[node] == smaller:
                return
            minima[node] = smaller


class TraceQueue:
    """All queued jobs, in order of arrival."""

    def __init__(self, jobs: Sequence[TraceJob]) -> None:
        by_size: dict[int, list[TraceJob]] = {}
        for job in jobs:
            by_size.setdefault(job.size, []).append(job)
        self._size_queues = {size: SizeQueue(size_jobs) for size, size_jobs in sorted(by_size.items())}
        self.length = 0

    def join(self, job: TraceJob) -> None:
        """Add the job."""
        self._size_queues[job.size].join(job)
        self.length += 1

    def leave(self, job: TraceJob) -> None:
        """Remove the job, because it starts."""
        self._size_queues[job.size].leave(job)
        self.length -= 1

    def head(self) -> TraceJob | None:
        """Return the first job of the queue; None if the queue is empty."""
        heads = (size_queue.first() for size_queue in self._size_queues.values())
        return min((job for job in heads if job is not None), key=lambda job: job.number, default=None)

    def sizes(self) -> Iterator[SizeQueue]:
        """Return the queues of each size, the smallest size first."""
        return iter(self._size_queues.values())
