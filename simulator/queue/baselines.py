"""Further baselines of the replay: conservative backfill, and a multifactor priority with ageing as in Slurm.

Both count GPUs, as textbook EASY does, and know only the estimates of the users.
"""

from __future__ import annotations

from gpu_recovery.core.queue.release_forecast import NEVER

from simulator.queue.disciplines import Easy, Start
from simulator.queue.job_index import SizeQueue, TraceQueue
from simulator.queue.job_trace import DAY_S, TraceJob

RESERVATIONS_MAX = 50
"""Queued jobs, from the first on, that conservative backfill plans at each event, as Slurm's `bf_max_job_test`."""
AGE_MAX_S = 7 * DAY_S
"""Waiting time at which the age factor reaches its maximum: the default of Slurm's `PriorityMaxAge`."""
USAGE_HALF_LIFE_S = 7 * DAY_S
"""Half-life of an owner's usage in the fair-share factor: the default of Slurm's `PriorityDecayHalfLife`."""


class Conservative(Easy):
    """Conservative backfill: each queued job has a reservation, and no job may delay one that is before it.

    All reservations are made again at each event, in the order of the queue, for the first `RESERVATIONS_MAX` jobs.
    """

    name = "conservative"

    def serve(self, queue: TraceQueue, now: float, start: Start) -> None:
        """Start every job whose reservation begins now."""
        if not self.free:
            return
        profile = _Profile(now, self.free, self._ends)
        for job in queue.first_jobs(RESERVATIONS_MAX):
            lasts_s = NEVER if job.estimate_s is None else job.estimate_s
            begins = profile.reserve(job.size, lasts_s)
            if begins <= now:
                start(job)
            if begins == NEVER or not self.free:
                return  # no job may pass a job whose begin is unknown


class _Profile:
    """The free GPUs over time, as steps: from `times[n]` until `times[n + 1]`, `free[n]` GPUs are free."""

    def __init__(self, now: float, free: int, ends: list[tuple[float, int, int]]) -> None:
        self.times, self.free = [now], [free]
        for at, _, size in ends:
            if at == NEVER:
                break
            if at <= self.times[-1]:
                self.free[-1] += size if at > now else 0  # a job that has run out of its estimate has no known end
            else:
                self.times.append(at)
                self.free.append(self.free[-1] + size)

    def reserve(self, size: int, lasts_s: float) -> float:
        """Take `size` GPUs for `lasts_s` seconds as early as possible; return the begin, `NEVER` if there is none."""
        begin = 0
        step = 0
        while step < len(self.times):
            if self.times[step] >= self.times[begin] + lasts_s:
                break
            if self.free[step] < size:
                begin = step + 1
                if begin == len(self.times):
                    return NEVER
            step += 1
        at = self.times[begin]
        end = self._split(at + lasts_s)
        for step in range(begin, end):
            self.free[step] -= size
        return at

    def _split(self, at: float) -> int:
        """Return the index of the step that begins at `at`, which is made if there is none."""
        if at == NEVER:
            return len(self.times)
        for step, begins in enumerate(self.times):
            if begins == at:
                return step
            if begins > at:
                self.times.insert(step, at)
                self.free.insert(step, self.free[step - 1])
                return step
        self.times.append(at)
        self.free.append(self.free[-1])
        return len(self.times) - 1


class Multifactor(Easy):
    """The order of Slurm's multifactor priority, with the backfill of the textbook.

    The priority is the sum of three factors of equal weight: the age, the size, and the fair share of the owner, whose
    usage decays. Owners have equal shares.
    """

    name = "multifactor"
    by_owner = True

    def __init__(self, gpus: int) -> None:
        super().__init__(gpus)
        self._gpus = gpus
        self._usage: dict[str, float] = {}
        self._usage_at = 0.0
        self._running_of: dict[str, int] = {}

    def start(self, job: TraceJob, now: float) -> None:
        """Take the job's GPUs, which count as usage of its owner from now on."""
        super().start(job, now)
        self._running_of[job.whose] = self._running_of.get(job.whose, 0) + job.size

    def end(self, job: TraceJob) -> None:
        """Free the job's GPUs."""
        super().end(job)
        self._running_of[job.whose] -= job.size

    def serve(self, queue: TraceQueue, now: float, start: Start) -> None:
        """Start the job of the highest priority as long as it fits, then every job that does not delay it."""
        self._count_usage(now)
        shares = self._shares()
        while (head := self._highest(queue, now, shares)) is not None and head.size <= self.free:
            start(head)
        if head is None or not self.free:
            return
        shadow, extra = self._shadow(head)
        before_s = -1.0 if shadow == NEVER else shadow - now
        while (job := self._highest(queue, now, shares, before_s, extra)) is not None:
            if job.estimate_s is None or job.estimate_s > before_s:
                extra -= job.size
            start(job)

    def _highest(
        self, queue: TraceQueue, now: float, shares: dict[str, float], before_s: float = NEVER, extra: int | None = None
    ) -> TraceJob | None:
        """Return the job of the highest priority; with `extra`, of those that fit and do not delay the head."""
        best: tuple[float, int] | None = None
        highest = None
        for size_queue in queue.sizes():
            if extra is not None and size_queue.size > self.free:
                break
            job = _first(size_queue, before_s, extra)
            if job is None:
                continue
            age = min(1.0, (now - job.at) / AGE_MAX_S)
            key = (age + job.size / self._gpus + shares.get(job.whose, 1.0), -job.number)
            if best is None or key > best:
                best, highest = key, job
        return highest

    def _count_usage(self, now: float) -> None:
        """Add the GPU-seconds since the last event, and let older usage decay."""
        passed = now - self._usage_at
        if passed <= 0:
            return
        keeps = 0.5 ** (passed / USAGE_HALF_LIFE_S)
        for owner, gpus in self._running_of.items():
            self._usage[owner] = self._usage.get(owner, 0.0) * keeps + gpus * passed
        self._usage_at = now

    def _shares(self) -> dict[str, float]:
        """Return the fair-share factor by owner: 2^(-usage / share), as in Slurm's classic formula."""
        total = sum(self._usage.values())
        if not total:
            return {}
        return {owner: 2.0 ** (-usage / total * len(self._usage)) for owner, usage in self._usage.items()}


def _first(size_queue: SizeQueue, before_s: float, extra: int | None) -> TraceJob | None:
    if extra is None or size_queue.size <= extra:
        return size_queue.first()
    return size_queue.first(before_s)
