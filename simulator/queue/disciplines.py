"""Four ways to serve one line: strict FIFO, best effort, textbook EASY, and ours with the production code's phases.

The first three count GPUs. Ours runs the production phases on as many hosts of one GPU: places are found by the
production `OpenHosts`, and the head is promised hosts by the production `promise`; only that they are driven by event,
on what an event has changed, instead of by a whole `place()` over everybody in line, which says the same to each.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable

from gpu_recovery.core.queue.backfill import promise
from gpu_recovery.core.queue.packing import OpenHosts
from gpu_recovery.core.queue.release_forecast import NEVER, free_from
from gpu_recovery.core.queue.snapshot import Host

from simulator.queue.job_index import TraceQueue
from simulator.queue.job_trace import TraceJob

Start = Callable[[TraceJob], None]


class Flat:
    """One pool of GPUs: whoever fits the number fits."""

    def __init__(self, gpus: int) -> None:
        self.free = gpus

    def start(self, job: TraceJob, now: float) -> None:
        """Take the job's GPUs."""
        self.free -= job.size

    def end(self, job: TraceJob) -> None:
        """Give them back."""
        self.free += job.size


class StrictFifo(Flat):
    """Nobody passes anybody."""

    name = "strict_fifo"

    def serve(self, line: TraceQueue, now: float, start: Start) -> None:
        """Start the head as long as it fits."""
        while (head := line.head()) is not None and head.size <= self.free:
            start(head)


class BestEffort(Flat):
    """Whoever fits starts, the first in line first; large jobs are passed again and again."""

    name = "best_effort"

    def serve(self, line: TraceQueue, now: float, start: Start) -> None:
        """Start whoever fits, until nobody does."""
        while (job := self._first(line)) is not None:
            start(job)

    def _first(self, line: TraceQueue) -> TraceJob | None:
        firsts = (one.first() for one in line.sizes() if one.size <= self.free)
        return min((one for one in firsts if one is not None), key=lambda job: job.number, default=None)


class Easy(Flat):
    """EASY as in the textbook: the head has a shadow time, by counting GPUs, and others may use what is extra then."""

    name = "easy"

    def __init__(self, gpus: int) -> None:
        super().__init__(gpus)
        self._ends: list[tuple[float, int, int]] = []
        self._end_of: dict[int, tuple[float, int, int]] = {}

    def start(self, job: TraceJob, now: float) -> None:
        """Take the job's GPUs until its estimate."""
        super().start(job, now)
        ends = (NEVER if job.estimate_s is None else now + job.estimate_s, job.number, job.size)
        self._end_of[job.number] = ends
        insort(self._ends, ends)

    def end(self, job: TraceJob) -> None:
        """Give them back, earlier than estimated as a rule."""
        super().end(job)
        self._ends.remove(self._end_of.pop(job.number))

    def serve(self, line: TraceQueue, now: float, start: Start) -> None:
        """Start the head as long as it fits, then whoever does not delay it."""
        while (head := line.head()) is not None and head.size <= self.free:
            start(head)
        if head is None or not self.free:
            return
        shadow, extra = self._shadow(head)
        while (job := self._first(line, shadow - now, extra)) is not None:
            if now + (NEVER if job.estimate_s is None else job.estimate_s) > shadow or shadow == NEVER:
                extra -= job.size
            start(job)

    def _shadow(self, head: TraceJob) -> tuple[float, int]:
        """When enough GPUs will be free for the head, and how many more than it needs."""
        free = self.free
        for at, _, size in self._ends:
            if at == NEVER:
                break
            free += size
            if free >= head.size:
                return at, free - head.size
        return NEVER, 0

    def _first(self, line: TraceQueue, within_s: float, extra: int) -> TraceJob | None:
        """The first that fits and either needs only what is extra or ends before the shadow time."""
        found = None
        in_time = -1.0 if within_s == NEVER else within_s
        for of_size in line.sizes():
            if of_size.size > self.free:
                break
            one = of_size.first() if of_size.size <= extra else of_size.first(in_time)
            if one is not None and (found is None or one.number < found.number):
                found = one
        return found


class Ours:
    """The production rules, a job of n GPUs being a gang of n hosts. A trace has neither priorities nor quotas."""

    name = "ours"

    def __init__(self, gpus: int) -> None:
        self._hosts = {f"h{n:05d}": Host(f"h{n:05d}", "", 1, 1) for n in range(gpus)}
        self._open, self._kept = OpenHosts(self._hosts, 1), OpenHosts(self._hosts, 1)
        for host_id in reversed(self._hosts):
            self._open.add(host_id, 1)
        self._available = {host_id: (0.0, -1, host_id) for host_id in self._hosts}
        self._at: dict[int, list[str]] = {}

    def start(self, job: TraceJob, now: float) -> None:
        """Take hosts that are kept for the head first: whoever may have them ends in time."""
        chosen = self._kept.pick(job.size, 1)
        for host_id in chosen:
            self._kept.take(host_id, 1)
        rest = self._open.pick(job.size - len(chosen), 1)
        for host_id in rest:
            self._open.take(host_id, 1)
        self._at[job.number] = chosen + rest
        ends_at = NEVER if job.estimate_s is None else now + job.estimate_s
        for host_id in self._at[job.number]:
            self._available[host_id] = (free_from(0, [(ends_at, 1)], 1), 0, host_id)

    def end(self, job: TraceJob) -> None:
        """Give back what it had."""
        for host_id in self._at.pop(job.number):
            self._available[host_id] = (0.0, -1, host_id)
            self._open.add(host_id, 1)

    def serve(self, line: TraceQueue, now: float, start: Start) -> None:
        """Start the head as long as it fits, then whoever leaves the head what it is promised."""
        for host_id in list(self._kept.free):
            self._open.add(host_id, self._kept.discard(host_id))
        while (head := line.head()) is not None and self._open.fits(1) >= head.size:
            start(head)
        if head is None or not self._open.free:
            return
        # An estimate that has run out is none.
        known = ((NEVER, 0, one[2]) if one[1] == 0 and one[0] <= now else one for one in self._available.values())
        hosts, starts_at = promise(known, head.size)
        for host_id in hosts:
            if self._open.discard(host_id):
                self._kept.add(host_id, 1)
        within_s = -1.0 if starts_at == NEVER else starts_at - now
        while (job := self._next(line, within_s)) is not None:
            start(job)

    def _next(self, line: TraceQueue, within_s: float) -> TraceJob | None:
        """The first in line that fits and ends before the head starts. Nothing is left over for those that do not:
        as long as the head does not fit, all that is free is among what is free first, and kept."""
        free = self._kept.fits(1)
        firsts = (of_size.first(within_s) for of_size in line.sizes() if of_size.size <= free)
        return min((one for one in firsts if one is not None), key=lambda job: job.number, default=None)
