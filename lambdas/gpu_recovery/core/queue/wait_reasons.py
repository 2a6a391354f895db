"""Phase 7: reasons. Every job that waits hears what it is short of, in a sentence."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from gpu_recovery.core.queue.backfill import BackfillWindow
from gpu_recovery.core.queue.host_selection import HostPool
from gpu_recovery.core.queue.release_forecast import ReleaseForecast
from gpu_recovery.core.queue.snapshot import Rejection, RejectionKind, WaitingJob

NAMED = 5
"""How many of the jobs in its way a job is told of."""


class WaitReasons:
    """The sentences of one group's line. What many jobs hear alike is made once."""

    def __init__(self, room: HostPool, occupancy: ReleaseForecast) -> None:
        self._hosts, self._forecast = room, occupancy
        self._behind: tuple[str, tuple[str, ...], datetime | None] = ("", (), None)

    def of_quota(self, job: WaitingJob, position: int, refused: tuple[RejectionKind, str]) -> Rejection:
        """Its user has as much as may be."""
        return Rejection(job.job_id, job.version, job.attempt, refused[1], refused[0], position)

    def of_cluster(self, job: WaitingJob, position: int) -> Rejection:
        """Not even the whole cluster could hold it."""
        where = f"the group {job.group}" if job.group else "the cluster"
        sentence = f"needs {_wanted(job)}; {where} has not that many, used or free"
        return Rejection(job.job_id, job.version, job.attempt, sentence, RejectionKind.CLUSTER, position)

    def of_turn(self, job: WaitingJob, position: int) -> Rejection:
        """Behind the head of the line, and what the head leaves over does not suit it."""
        sentence, blockers, at = self._behind
        return Rejection(job.job_id, job.version, job.attempt, sentence, RejectionKind.TURN, position, blockers, at)

    def of_own(self, job: WaitingJob, position: int) -> Rejection:
        """It takes its own instances only, and waits for some of them."""
        missing = [one for one in job.last if self._hosts.free_for(one, job) < job.gpus and one not in self._hosts.held]
        sentence = f"waits for its own instances: {', '.join(missing) or 'their repair to be reported'}"
        return Rejection(job.job_id, job.version, job.attempt, sentence, RejectionKind.OWN, position)

    def of_preemption(self, job: WaitingJob, position: int, leavers: Sequence[str]) -> Rejection:
        """Others are being suspended for it."""
        sentence = f"needs {_wanted(job)}; waits for {_few(leavers)} to make room"
        return Rejection(
            job.job_id, job.version, job.attempt, sentence, RejectionKind.ROOM, position, tuple(leavers[:NAMED])
        )

    def of_gpus(self, job: WaitingJob, position: int, fitting: int, window: BackfillWindow | None = None) -> Rejection:
        """Its turn has come, only its GPUs have not."""
        blockers: tuple[str, ...] = ()
        at = None
        if window is not None:
            at = window.reservation.at
            blockers = self._blockers(window.reservation.hosts)
            self._behind = (f"waits behind {job.job_id}", (job.job_id,), at)
        sentence = f"needs {_wanted(job)}; {fitting} are free"
        return Rejection(job.job_id, job.version, job.attempt, sentence, RejectionKind.GPUS, position, blockers, at)

    def _blockers(self, hosts: Collection[str]) -> tuple[str, ...]:
        """The jobs that hold what is promised, those that end last first."""
        holders = {one.job_id: self._forecast.ends_in(one) for host in hosts for one in self._forecast.on(host)}
        return tuple(sorted(holders, key=lambda one: (-holders[one], one))[:NAMED])


def _wanted(job: WaitingJob) -> str:
    return f"{job.nodes} instance(s) with {job.gpus} GPU(s) each"


def _few(names: Sequence[str]) -> str:
    rest = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {rest} more" if rest > 0 else "")
