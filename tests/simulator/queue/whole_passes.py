"""A trace under whole passes of the scheduler: a discipline of the replay that calls `place()` at each event."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from gpu_recovery.core.policy import PRESETS, Preset, RecoveryPolicy
from gpu_recovery.core.queue.backfill import RunTimeBound
from gpu_recovery.core.queue.place import place
from gpu_recovery.core.queue.priority import Priority
from gpu_recovery.core.queue.snapshot import Host, RunningJob, Snapshot, WaitingJob

from simulator.queue.job_index import TraceQueue
from simulator.queue.job_trace import TraceJob

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
POLICY = PRESETS[Preset.ADAPTIVE]


class WholePasses:
    """The same trace with a whole production `place()` at each event.

    keeps:    whether the record of a head keeps since when it could have started without those that passed it.
    promised: the first promise to each head of the queue, in seconds since the begin; None without an estimate.
    """

    name = "place"
    by_owner = False

    def __init__(self, jobs: Sequence[TraceJob], gpus: int, policy: RecoveryPolicy = POLICY) -> None:
        self._policy = policy
        self._jobs, self._hosts = {job.number: job for job in jobs}, [f"h{n:05d}" for n in range(gpus)]
        self._running: dict[int, RunningJob] = {}
        self._started: set[int] = set()
        self._passed_since: dict[str, datetime | None] = {}
        self.keeps = True
        self.promised: dict[int, float | None] = {}

    def start(self, job: TraceJob, now: float) -> None:
        self._started.add(job.number)

    def end(self, job: TraceJob) -> None:
        del self._running[job.number]

    def serve(self, line: TraceQueue, now: float, start: Callable[[TraceJob], None]) -> None:
        at = EPOCH + timedelta(seconds=now)
        busy = {host for job in self._running.values() for host in job.hosts}
        hosts = tuple(Host(name, "", 1, int(name not in busy)) for name in self._hosts)

        def expected(job: RunningJob) -> RunningJob:
            """The job with the end that is expected now: by its kind, or later by its limit."""
            known = self._jobs[int(job.job_id)]
            ends = (known.bounded(bound) for bound in (RunTimeBound.P90, RunTimeBound.LIMIT))
            later = [job.since + timedelta(seconds=end) for end in ends if end is not None]
            return replace(job, ends_at=next((end for end in later if end > at), None))

        waiting = tuple(
            WaitingJob(
                f"{job.number:06d}",
                1,
                0,
                "u",
                Priority.NORMAL,
                Priority.NORMAL,
                "",
                job.size,
                1,
                EPOCH + timedelta(seconds=job.at),
                runs_for_s=job.bounded(RunTimeBound.P90),  # type: ignore[arg-type]
                median_s=job.bounded(RunTimeBound.MEDIAN),  # type: ignore[arg-type]
                limit_s=job.estimate_s,  # type: ignore[arg-type]
                passed_since=self._passed_since.get(f"{job.number:06d}"),
            )
            for job in self._jobs.values()
            if job.at <= now and job.number not in self._started
        )
        answer = place(Snapshot(waiting, tuple(map(expected, self._running.values())), hosts), self._policy, at)
        for reservation in answer.reservations:
            self.promised.setdefault(
                int(reservation.job_id), (reservation.at - EPOCH).total_seconds() if reservation.at else None
            )
        if self.keeps:
            self._passed_since |= {one.job_id: one.passed_since for one in answer.rejected if one.passed_since}
        for one in answer.assignments:
            job = self._jobs[int(one.job_id)]
            start(job)
            self._running[job.number] = RunningJob(
                one.job_id,
                1,
                1,
                "u",
                Priority.NORMAL,
                Priority.NORMAL,
                "",
                job.size,
                1,
                one.instances,
                at,
                EPOCH + timedelta(seconds=job.at),
            )
