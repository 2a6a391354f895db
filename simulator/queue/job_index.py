"""The line of a trace: jobs in order of arrival, by size, and the first of a size that ends in time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from simulator.queue.job_trace import TraceJob

GONE = float("inf")
UNKNOWN = 1e300
"""The estimate of a job that has none: in line, and never in time."""


class SizeQueue:
    """Those in line that want as many GPUs. A tree of minima over their estimates finds who ends in time.

    All jobs of the size that ever come are leaves; one that is not in line has the estimate GONE.
    """

    def __init__(self, jobs: Sequence[TraceJob]) -> None:
        self.size = jobs[0].size
        self._jobs = list(jobs)
        self._leaf_of = {job.number: leaf for leaf, job in enumerate(jobs)}
        self._width = 1 << (len(jobs) - 1).bit_length()
        self._least = [GONE] * (2 * self._width)

    def join(self, job: TraceJob) -> None:
        """The job has come, perhaps with an estimate that it did not have when the line was made."""
        self._jobs[self._leaf_of[job.number]] = job
        self._set(job, UNKNOWN if job.estimate_s is None else job.estimate_s)

    def leave(self, job: TraceJob) -> None:
        """The job has started."""
        self._set(job, GONE)

    def first(self, within_s: float = UNKNOWN) -> TraceJob | None:
        """The first in line whose estimate is at most `within_s`; without one, the first of all."""
        least, at = self._least, 1
        if least[1] > within_s:
            return None
        while at < self._width:
            at *= 2
            if least[at] > within_s:
                at += 1
        return self._jobs[at - self._width]

    def _set(self, job: TraceJob, value: float) -> None:
        least, at = self._least, self._leaf_of[job.number] + self._width
        least[at] = value
        while at > 1:
            at //= 2
            smaller = min(least[2 * at], least[2 * at + 1])
            if least[at] == smaller:
                return
            least[at] = smaller


class TraceQueue:
    """Everybody in line, the first to come first."""

    def __init__(self, jobs: Sequence[TraceJob]) -> None:
        by_size: dict[int, list[TraceJob]] = {}
        for job in jobs:
            by_size.setdefault(job.size, []).append(job)
        self._lines = {size: SizeQueue(of_size) for size, of_size in sorted(by_size.items())}
        self.length = 0

    def join(self, job: TraceJob) -> None:
        """The job has come."""
        self._lines[job.size].join(job)
        self.length += 1

    def leave(self, job: TraceJob) -> None:
        """The job has started."""
        self._lines[job.size].leave(job)
        self.length -= 1

    def head(self) -> TraceJob | None:
        """The first of all."""
        heads = (line.first() for line in self._lines.values())
        return min((one for one in heads if one is not None), key=lambda job: job.number, default=None)

    def sizes(self) -> Iterator[SizeQueue]:
        """The lines of each size, the smallest first."""
        return iter(self._lines.values())
