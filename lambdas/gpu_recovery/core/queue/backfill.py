"""Phase 5: EASY backfill. The head of a group's line is promised hosts; others may only use what that leaves over.

Others pass the head if they end before it starts, or use hosts that it was not promised. So nothing that is
started behind the head's back can delay it as long as the estimates hold (Lifka 1995; Mu'alem and Feitelson 2001).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from gpu_recovery.core.queue.host_selection import HostPool
from gpu_recovery.core.queue.release_forecast import NEVER, ReleaseForecast
from gpu_recovery.core.queue.snapshot import Host, Reservation, WaitingJob


class BackfillWindow:
    """What a head that waits leaves to the jobs behind it."""

    def __init__(self, job: WaitingJob, room: HostPool, occupancy: ReleaseForecast) -> None:
        self.job = job
        hosts, self._starts_in = _promised(job, room, occupancy)
        at = None if self._starts_in == NEVER else room.at + timedelta(seconds=self._starts_in)
        self.reservation = Reservation(job.job_id, job.group, tuple(sorted(hosts)), at)
        for host_id in hosts:
            room.leaving.pop(host_id, None)
            free = room.open.discard(host_id)
            if free and at is not None:
                room.kept.add(host_id, free)

    def admits(self, job: WaitingJob) -> bool:
        """Whether the job ends before the head starts, so that it may use what the head is promised."""
        return self.reservation.at is not None and job.runs_for_s is not None and job.runs_for_s <= self._starts_in


def _promised(job: WaitingJob, room: HostPool, occupancy: ReleaseForecast) -> tuple[list[str], float]:
    """The hosts that the job is promised, and the seconds until the last of them is free for it."""
    available = [
        (_free_in(host, job, room, occupancy), -room.free_for(host_id, job), host_id)
        for host_id, host in room.hosts.items()
        if host.counts and host.gpus >= job.gpus and host_id not in room.held
    ]
    return promise(available, job.nodes)


def promise(available: Iterable[tuple[float, int, str]], nodes: int) -> tuple[list[str], float]:
    """The `nodes` hosts that are free first, and when the last of them is; NEVER if nobody can tell.

    available: each host that could serve the head of the line, with when it is free for it, and what is free there
    now, negated. What fits now is kept, and what will fit soonest left to drain. The textbook promises what comes free
    last and lends out what is free now; but users ask for several times what their jobs need, and the head could start
    long before that, had it only kept what was free (docs/queue.md has the figures).
    """
    first = sorted(available)[:nodes]
    starts_at = first[-1][0] if len(first) == nodes else NEVER
    return [host_id for _, _, host_id in first], starts_at


def _free_in(host: Host, job: WaitingJob, room: HostPool, occupancy: ReleaseForecast) -> float:
    """Seconds until the host is free for the job; NEVER where nobody can tell, or it is about to leave."""
    if not host.usable or host.leaves_at is not None:
        return NEVER
    free_in = occupancy.free_in(host.host_id, room.free_for(host.host_id, job), job.gpus)
    if room.owner(host) in ("", job.job_id):
        return free_in
    if host.reserved_until is None:
        return NEVER
    free_in = occupancy.free_in(host.host_id, host.free, job.gpus)
    return max(free_in, (host.reserved_until - room.at).total_seconds())
