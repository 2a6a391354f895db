"""Queue disciplines of the replay: strict FIFO, best effort, textbook EASY backfill, and the production rules.

The first three count GPUs. `ProductionRules` runs the production phases on a cluster of hosts with one GPU each. There
`OpenHosts` finds the hosts of a job, and `promise` reserves hosts for the head of the queue, as in production.

Only the driver differs. It processes each event with the changes that the event made, and never calls `place()` for
all queued jobs. The decisions are the same.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Collection

from gpu_recovery.core.policy import PERCENT_MAX, PRESETS, Preset, RecoveryPolicy
from gpu_recovery.core.queue.backfill import HeadDelay, RunTimeBound, bound_for, passing_window_s, promise
from gpu_recovery.core.queue.packing import OpenHosts
from gpu_recovery.core.queue.release_forecast import NEVER
from gpu_recovery.core.queue.snapshot import Host

from simulator.queue.job_index import TraceQueue
from simulator.queue.job_trace import TraceJob

Start = Callable[[TraceJob], None]
"""Function that starts a job: takes the job out of the queue and its GPUs from the cluster."""


class Flat:
    """One pool of GPUs. A job fits if enough GPUs are free."""

    by_owner = False

    def __init__(self, gpus: int) -> None:
        self.free = gpus

    def start(self, job: TraceJob, now: float) -> None:
        """Take the job's GPUs."""
        self.free -= job.size

    def end(self, job: TraceJob) -> None:
        """Free the job's GPUs."""
        self.free += job.size


class StrictFifo(Flat):
    """Jobs start strictly in the order of the queue."""

    name = "strict_fifo"

    def serve(self, queue: TraceQueue, now: float, start: Start) -> None:
        """Start the head of the queue as long as it fits."""
        while (head := queue.head()) is not None and head.size <= self.free:
            start(head)


class BestEffort(Flat):
    """Every job that fits starts, in the order of the queue. Smaller jobs pass a large job again and again."""

    name = "best_effort"

    def serve(self, queue: TraceQueue, now: float, start: Start) -> None:
        """Start the first job that fits, until no job fits."""
        while (job := self._first(queue)) is not None:
            start(job)

    def _first(self, queue: TraceQueue) -> TraceJob | None:
        firsts = (size_queue.first() for size_queue in queue.sizes() if size_queue.size <= self.free)
        return min((job for job in firsts if job is not None), key=lambda job: job.number, default=None)


class Easy(Flat):
    """EASY backfill as in the textbook.

    The head of the queue has a shadow time, computed from counts of GPUs. Other jobs may use GPUs until then, or the
    extra GPUs that the head does not need.
    """

    name = "easy"

    def __init__(self, gpus: int) -> None:
        super().__init__(gpus)
        self._ends: list[tuple[float, int, int]] = []
        self._end_of: dict[int, tuple[float, int, int]] = {}

    def start(self, job: TraceJob, now: float) -> None:
        """Take the job's GPUs and record its estimated end."""
        super().start(job, now)
        end = (NEVER if job.estimate_s is None else now + job.estimate_s, job.number, job.size)
        self._end_of[job.number] = end
        insort(self._ends, end)

    def end(self, job: TraceJob) -> None:
        """Free the job's GPUs, usually before the estimated end."""
        super().end(job)
        self._ends.remove(self._end_of.pop(job.number))

    def serve(self, queue: TraceQueue, now: float, start: Start) -> None:
        """Start the head as long as it fits, then every job that does not delay the head."""
        while (head := queue.head()) is not None and head.size <= self.free:
            start(head)
        if head is None or not self.free:
            return
        shadow, extra = self._shadow(head)
        while (job := self._first(queue, shadow - now, extra)) is not None:
            if now + (NEVER if job.estimate_s is None else job.estimate_s) > shadow or shadow == NEVER:
                extra -= job.size
            start(job)

    def _shadow(self, head: TraceJob) -> tuple[float, int]:
        """Return when enough GPUs are free for the head, and how many extra GPUs are free then.

        Without an estimate that frees enough GPUs, the result is (NEVER, 0).
        """
        free = self.free
        for at, _, size in self._ends:
            if at == NEVER:
                break
            free += size
            if free >= head.size:
                return at, free - head.size
        return NEVER, 0

    def _first(self, queue: TraceQueue, within_s: float, extra: int) -> TraceJob | None:
        """Return the first job that fits and either needs only extra GPUs or ends before the shadow time.

        Args:
            queue: the queued jobs.
            within_s: seconds until the shadow time.
            extra: GPUs that the head does not need at the shadow time.
        """
        first = None
        before_shadow_s = -1.0 if within_s == NEVER else within_s
        for size_queue in queue.sizes():
            if size_queue.size > self.free:
                break
            candidate = size_queue.first() if size_queue.size <= extra else size_queue.first(before_shadow_s)
            if candidate is not None and (first is None or candidate.number < first.number):
                first = candidate
        return first


class ProductionRules:
    """The production rules. A job of n GPUs is a gang on n hosts. A trace has neither priorities nor quotas."""

    name = "ours"
    by_owner = False

    def __init__(self, gpus: int, policy: RecoveryPolicy = PRESETS[Preset.ADAPTIVE]) -> None:
        self._policy = policy
        self._hosts = {f"h{n:05d}": Host(f"h{n:05d}", "", 1, 1) for n in range(gpus)}
        self._open, self._reserved = OpenHosts(self._hosts, 1), OpenHosts(self._hosts, 1)
        for host_id in reversed(self._hosts):
            self._open.add(host_id, 1)
        self._ends: dict[str, tuple[float, float]] = {}
        self._hosts_of: dict[int, list[str]] = {}
        self._passed_since: dict[int, float] = {}

    def start(self, job: TraceJob, now: float) -> None:
        """Take hosts for the job, first those that are reserved for the head: the job ends before the head starts."""
        reserved = self._reserved.pick(job.size, 1)
        for host_id in reserved:
            self._reserved.take(host_id, 1)
        rest = self._open.pick(job.size - len(reserved), 1)
        for host_id in rest:
            self._open.take(host_id, 1)
        self._hosts_of[job.number] = reserved + rest
        expected_s, limit_s = job.bounded(RunTimeBound.P90), job.estimate_s
        limit_at = NEVER if limit_s is None else now + limit_s
        ends_at = NEVER if expected_s is None else now + expected_s
        self._ends |= dict.fromkeys(self._hosts_of[job.number], (ends_at, limit_at))

    def end(self, job: TraceJob) -> None:
        """Free the job's hosts."""
        for host_id in self._hosts_of.pop(job.number):
            del self._ends[host_id]
            self._open.add(host_id, 1)

    def serve(self, queue: TraceQueue, now: float, start: Start) -> None:
        """Start the head as long as it fits, then every job that leaves the head its promised hosts."""
        for host_id in list(self._reserved.free):
            self._open.add(host_id, self._reserved.discard(host_id))
        while (head := queue.head()) is not None and self._open.fits(1) >= head.size:
            start(head)
        if head is None:
            return
        by_passers = {host_id for number, hosts in self._hosts_of.items() if number > head.number for host_id in hosts}
        if self._open.fits(1) + len(by_passers) >= head.size:
            self._passed_since.setdefault(head.number, now)
        if not self._open.free:
            return
        hosts, starts_at = promise((self._free_at(host_id, now) for host_id in self._hosts), head.size)
        alone_at = starts_at
        if self._open.fits(1) + len(by_passers) >= head.size:
            alone_at = now
        elif by_passers:
            alone_at = promise((self._free_at(host_id, now, by_passers) for host_id in self._hosts), head.size)[1]
        for host_id in hosts:
            if self._open.discard(host_id):
                self._reserved.add(host_id, 1)
        waited_s, delayed_s = now - head.at, now - self._passed_since.get(head.number, now)
        bound = bound_for(waited_s, head.size, self._policy)
        delay = HeadDelay(starts_at - now, alone_at - now, waited_s, delayed_s)
        within_s = passing_window_s(delay, bound, self._policy.backfill_slack_percent / PERCENT_MAX)
        while (job := self._next(queue, within_s, bound)) is not None:
            start(job)

    def _free_at(self, host_id: str, now: float, without: Collection[str] = ()) -> tuple[float, int, str]:
        """Return when the host is free for the head, as `promise` takes it. The hosts `without` count as free.

        A job that runs longer than its kind is expected to end at its limit. After that its end is unknown.
        """
        ends = self._ends.get(host_id)
        if ends is None or host_id in without:
            return 0.0, -1, host_id
        return next((at for at in ends if at > now), NEVER), 0, host_id

    def _next(self, queue: TraceQueue, within_s: float, bound: RunTimeBound) -> TraceJob | None:
        """Return the first job in the queue that fits and ends in time.

        Other jobs get no hosts. As long as the head does not fit, every free host is among the hosts that are free
        first, and so is reserved for the head.
        """
        free = self._reserved.fits(1)
        firsts = (size_queue.first(within_s, bound) for size_queue in queue.sizes() if size_queue.size <= free)
        return min((job for job in firsts if job is not None), key=lambda job: job.number, default=None)
