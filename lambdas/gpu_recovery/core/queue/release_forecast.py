"""Release forecast: when the GPUs of a group come free, and for which jobs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime

from gpu_recovery.core.queue.priority import Priority
from gpu_recovery.core.queue.snapshot import RunningJob

NEVER = float("inf")
"""Seconds until an event without an estimate."""


def free_from(free: int, ends: Iterable[tuple[float, int]], gpus: int) -> float:
    """Return the seconds until `gpus` GPUs are free on a host; `NEVER` if the estimates do not say.

    Args:
        free: GPUs that are free now.
        ends: (seconds until a job ends, GPUs that the job releases).
    """
    for at, given_back in sorted(ends):
        free += given_back
        if free >= gpus:
            return at
    return NEVER


def priority_of(job: RunningJob, now: datetime) -> Priority:
    """Return the effective priority of a running job. A demotion that is due counts as done."""
    if job.demotes_at is not None and job.demotes_at <= now:
        return min(job.priority, Priority.NORMAL)
    return job.priority


class ReleaseForecast:
    """The running jobs of one group by host."""

    def __init__(self, running: Iterable[RunningJob], now: datetime) -> None:
        self.at = now
        self.running = sorted(running, key=lambda job: job.job_id)
        self._by_host: dict[str, list[RunningJob]] | None = None
        self._assigned: dict[str, list[tuple[float, int]]] = {}
        self._vacating: dict[str, int] = {}
        self._leavers: dict[str, list[str]] = {}
        self.record_leaving(job for job in self.running if job.leaving and job.for_job)

    def on(self, host_id: str) -> list[RunningJob]:
        """Return the jobs that hold GPUs of a host."""
        if self._by_host is None:
            self._by_host = {}
            for job in self.running:
                for name in job.hosts:
                    self._by_host.setdefault(name, []).append(job)
        return self._by_host.get(host_id, [])

    def held(self, host_id: str) -> int:
        """Return how many GPUs of a host are held by running jobs."""
        return sum(job.gpus for job in self.on(host_id))

    def record_leaving(self, jobs: Iterable[RunningJob]) -> None:
        """Record jobs that are suspended for others, before this pass or by it. Their GPUs will come free."""
        for job in jobs:
            for host_id in job.hosts:
                self._vacating[host_id] = self._vacating.get(host_id, 0) + job.gpus
                self._leavers.setdefault(host_id, []).append(job.job_id)

    def vacating(self) -> Mapping[str, int]:
        """Return the hosts that are being vacated and not promised yet, with the GPUs that will be released."""
        return self._vacating

    def promised(self, hosts: Iterable[str]) -> None:
        """Record that hosts that are being vacated are now promised to a job."""
        for host_id in hosts:
            self._vacating.pop(host_id, None)

    def leavers(self, hosts: Iterable[str]) -> list[str]:
        """Return the jobs that vacate these hosts."""
        return sorted({job_id for host_id in hosts for job_id in self._leavers.get(host_id, ())})

    def assign(self, hosts: Iterable[str], gpus: int, runs_for_s: int | None) -> None:
        """Record that a job starts on these hosts in this pass.

        Args:
            gpus: GPUs that the job holds on each host.
            runs_for_s: expected run time in seconds; None if unknown.
        """
        for host_id in hosts:
            self._assigned.setdefault(host_id, []).append((NEVER if runs_for_s is None else runs_for_s, gpus))

    def free_in(self, host_id: str, free: int, gpus: int, without: Collection[str] = ()) -> float:
        """Return the seconds until `gpus` GPUs are free on a host with `free` free GPUs now, by the estimates.

        An estimate that has run out counts as no estimate. The jobs `without` count as ended.
        """
        if free >= gpus:
            return 0.0
        ends = [(0.0 if job.job_id in without else self.ends_in(job), job.gpus) for job in self.on(host_id)]
        return free_from(free, [*self._assigned.get(host_id, ()), *ends], gpus)

    def ends_in(self, job: RunningJob) -> float:
        """Return the seconds until a running job ends by its estimate; `NEVER` without one."""
        if job.ends_at is None or job.ends_at <= self.at:
            return NEVER
        return (job.ends_at - self.at).total_seconds()
