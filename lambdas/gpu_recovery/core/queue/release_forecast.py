"""Who holds the GPUs of a group: when they come free by the estimates, and for whom they are being vacated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from gpu_recovery.core.queue.priority import Priority
from gpu_recovery.core.queue.snapshot import RunningJob

NEVER = float("inf")
"""Seconds until something of which nobody can tell when it will be."""


def free_from(free: int, ends: Iterable[tuple[float, int]], gpus: int) -> float:
    """When `gpus` are free on a host, given what is free there now, and when others end with how many each."""
    for at, given_back in sorted(ends):
        free += given_back
        if free >= gpus:
            return at
    return NEVER


def priority_of(job: RunningJob, now: datetime) -> Priority:
    """The effective priority of a running job: a demotion that is due has taken place."""
    if job.demotes_at is not None and job.demotes_at <= now:
        return min(job.priority, Priority.NORMAL)
    return job.priority


class ReleaseForecast:
    """The running jobs of one group by host."""

    def __init__(self, running: Iterable[RunningJob], now: datetime) -> None:
        self.at = now
        self.running = sorted(running, key=lambda job: job.job_id)
        self._by_host: dict[str, list[RunningJob]] | None = None
        self._given: dict[str, list[tuple[float, int]]] = {}
        self._vacating: dict[str, int] = {}
        self._leavers: dict[str, list[str]] = {}
        self.vacated(job for job in self.running if job.leaving and job.for_job)

    def on(self, host_id: str) -> list[RunningJob]:
        """The jobs that hold GPUs of a host."""
        if self._by_host is None:
            self._by_host = {}
            for job in self.running:
                for one in job.hosts:
                    self._by_host.setdefault(one, []).append(job)
        return self._by_host.get(host_id, [])

    def held(self, host_id: str) -> int:
        """How many GPUs of a host running jobs hold."""
        return sum(job.gpus for job in self.on(host_id))

    def vacated(self, jobs: Iterable[RunningJob]) -> None:
        """Jobs that are suspended for others, before this pass or by it: what they hold will come free."""
        for job in jobs:
            for host_id in job.hosts:
                self._vacating[host_id] = self._vacating.get(host_id, 0) + job.gpus
                self._leavers.setdefault(host_id, []).append(job.job_id)

    def vacating(self) -> Mapping[str, int]:
        """Hosts that are being vacated for nobody in particular yet, with how many GPUs will be given back there."""
        return self._vacating

    def promised(self, hosts: Iterable[str]) -> None:
        """Hosts that are being vacated, and kept for somebody from now on."""
        for host_id in hosts:
            self._vacating.pop(host_id, None)

    def leavers(self, hosts: Iterable[str]) -> list[str]:
        """The jobs that vacate these hosts."""
        return sorted({job_id for host_id in hosts for job_id in self._leavers.get(host_id, ())})

    def given(self, hosts: Iterable[str], gpus: int, runs_for_s: int | None) -> None:
        """A job starts there in this pass: it will hold its GPUs for so long."""
        for host_id in hosts:
            self._given.setdefault(host_id, []).append((NEVER if runs_for_s is None else runs_for_s, gpus))

    def free_in(self, host_id: str, free: int, gpus: int) -> float:
        """Seconds until `gpus` are free on a host that has `free` now, by the estimates. An estimate that has run out
        is none."""
        if free >= gpus:
            return 0.0
        ends = [(self.ends_in(job), job.gpus) for job in self.on(host_id)]
        return free_from(free, [*self._given.get(host_id, ()), *ends], gpus)

    def ends_in(self, job: RunningJob) -> float:
        """Seconds until a running job has ended, by its estimate."""
        if job.ends_at is None or job.ends_at <= self.at:
            return NEVER
        return (job.ends_at - self.at).total_seconds()
