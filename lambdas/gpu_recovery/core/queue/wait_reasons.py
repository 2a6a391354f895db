"""Phase 7, wait reasons: one sentence for each waiting job that says what it lacks."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from gpu_recovery.core.queue.backfill import BackfillWindow
from gpu_recovery.core.queue.host_selection import HostPool
from gpu_recovery.core.queue.release_forecast import ReleaseForecast
from gpu_recovery.core.queue.snapshot import LaunchHold, OutOfUse, Rejection, RejectionKind, WaitingJob
from gpu_recovery.core.queue.unusable_hosts import UnusableHosts

NAMED = 5
"""Upper bound of the blocking jobs that a wait reason names."""
NOT_COUNTED = (OutOfUse.HELD, OutOfUse.QUARANTINED)
"""Reasons for which a host does not count as part of the cluster (`Host.counts`)."""


class WaitReasons:
    """Builds the wait reasons for the queue of one group. A sentence that many jobs share is built once."""

    def __init__(self, pool: HostPool, forecast: ReleaseForecast, unusable: UnusableHosts) -> None:
        self._hosts, self._forecast, self._unusable = pool, forecast, unusable
        self._behind: tuple[str, tuple[str, ...], datetime | None] = ("", (), None)

    def of_quota(self, job: WaitingJob, position: int, refused: tuple[RejectionKind, str]) -> Rejection:
        """Return the reason of a job that a quota blocks."""
        return _rejected(job, refused[1], refused[0], position)

    def of_permission(self, job: WaitingJob, position: int, hold: LaunchHold) -> Rejection:
        """Return the reason of a job that AWS would not let the deployment launch."""
        sentence = f"gpu-recovery lacks the permission {hold.permission}; one launch at a time is tried again"
        return _rejected(job, sentence, RejectionKind.PERMISSION, position)

    def of_cluster(self, job: WaitingJob, position: int) -> Rejection:
        """Return the reason of a job that is too large for the hosts that work without an operator."""
        where = f"the group {job.group}" if job.group else "the cluster"
        there, held = self._hosts.large_enough(job), self._unusable.held(job.gpus)
        without = self._unusable.sentence(job.gpus, NOT_COUNTED)
        has = f"has {there}, used or free; {without}" if without else "has fewer, used or free"
        sentence = f"needs {_wanted(job)}; {where} {has}"
        short_of = RejectionKind.HELD if there + held >= job.nodes else RejectionKind.CLUSTER
        return _rejected(job, sentence, short_of, position)

    def of_queue_order(self, job: WaitingJob, position: int) -> Rejection:
        """Return the reason of a job behind the head of the queue that fits no backfill window."""
        sentence, blockers, at = self._behind
        return _rejected(job, sentence, RejectionKind.TURN, position, blockers, at)

    def of_own(self, job: WaitingJob, position: int) -> Rejection:
        """Return the reason of a job that accepts only its own instances, and waits for some of them."""
        missing = [
            host_id
            for host_id in job.last
            if self._hosts.free_for(host_id, job) < job.gpus and host_id not in self._hosts.held
        ]
        sentence = f"waits for its own instances: {', '.join(missing) or 'their repair to be reported'}"
        sentence += _joined("; ", self._unusable.among(missing).sentence(job.gpus, NOT_COUNTED))
        return _rejected(job, sentence, RejectionKind.OWN, position)

    def of_preemption(self, job: WaitingJob, position: int, leavers: Sequence[str]) -> Rejection:
        """Return the reason of a job for which others are being suspended."""
        sentence = f"needs {_wanted(job)}; waits for {_few(leavers)} to make room"
        return _rejected(job, sentence, RejectionKind.ROOM, position, tuple(leavers[:NAMED]))

    def of_gpus(
        self, job: WaitingJob, position: int, fitting: int, window: BackfillWindow | None = None, limits: str = ""
    ) -> Rejection:
        """Return the reason of a job that is next in the queue and waits for GPUs.

        Args:
            fitting: the number of hosts that it may use now.
            window: its backfill window, if the job is the head of the queue.
            limits: which limits of preemption make it wait, in words.
        """
        blockers: tuple[str, ...] = ()
        at = None
        if window is not None:
            at = window.reservation.at
            blockers = self._blockers(window.reservation.hosts)
            self._behind = (f"waits behind {job.job_id}", (job.job_id,), at)
        sentence = f"needs {_wanted(job)}; {fitting} are free{_joined(', ', self._unusable.sentence(job.gpus))}"
        sentence += _joined("; ", limits)
        passed_since = None if window is None else window.passed_since
        if window is not None and window.delaying:
            sentence += f"; {_few(sorted(window.delaying))} passed it, or it could start now"
        short_of = RejectionKind.HELD if fitting + self._unusable.held(job.gpus) >= job.nodes else RejectionKind.GPUS
        return _rejected(job, sentence, short_of, position, blockers, at, passed_since)

    def of_width(self, job: WaitingJob, position: int, until: datetime, now: datetime) -> Rejection:
        """Return the reason of an elastic job that could start with `job.nodes` instances, and waits for more."""
        sentence = f"needs {_wanted(job)}; {job.nodes} are free; waits until {until:%H:%M:%S} UTC for more"
        since = None if job.recovering else job.narrow_since or now
        return _rejected(job, sentence, RejectionKind.GPUS, position, narrow_since=since)

    def _blockers(self, hosts: Collection[str]) -> tuple[str, ...]:
        """Return the jobs that hold promised hosts, the latest end first."""
        holders = {job.job_id: self._forecast.ends_in(job) for host in hosts for job in self._forecast.on(host)}
        return tuple(sorted(holders, key=lambda job_id: (-holders[job_id], job_id))[:NAMED])


def _rejected(
    job: WaitingJob,
    sentence: str,
    short_of: RejectionKind,
    position: int,
    blockers: tuple[str, ...] = (),
    earliest_at: datetime | None = None,
    passed_since: datetime | None = None,
    narrow_since: datetime | None = None,
) -> Rejection:
    """Return the rejection of the job as the pass has read it."""
    return Rejection(
        job.job_id,
        job.group,
        job.version,
        job.attempt,
        sentence,
        short_of,
        position,
        blockers,
        earliest_at,
        passed_since,
        narrow_since,
    )


def _wanted(job: WaitingJob) -> str:
    """Describe the GPUs that the job needs."""
    wanted = str(job.nodes) if job.widths is None else f"{job.widths[0]} to {job.widths[1]}"
    return f"{wanted} instance(s) with {job.gpus} GPU(s) each"


def _joined(separator: str, words: str) -> str:
    """Return the words after the separator; "" for no words."""
    return separator + words if words else ""


def _few(names: Sequence[str]) -> str:
    """List the first names, and the number of the others."""
    rest = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {rest} more" if rest > 0 else "")
