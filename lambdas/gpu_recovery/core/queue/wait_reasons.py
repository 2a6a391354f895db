"""Phase 7: reasons. Every job that waits hears what it is short of, in a sentence."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from gpu_recovery.core.queue.backfill import Gap
from gpu_recovery.core.queue.host_selection import Room
from gpu_recovery.core.queue.release_forecast import Occupancy
from gpu_recovery.core.queue.snapshot import Short, Shortage, Waiting

NAMED = 5
"""How many of the jobs in its way a job is told of."""


class Reasons:
    """The sentences of one group's line. What many jobs hear alike is made once."""

    def __init__(self, room: Room, occupancy: Occupancy) -> None:
        self._room, self._occupancy = room, occupancy
        self._behind: tuple[str, tuple[str, ...], datetime | None] = ("", (), None)

    def of_quota(self, job: Waiting, position: int, refused: tuple[Shortage, str]) -> Short:
        """Its user has as much as may be."""
        return Short(job.job_id, job.version, job.attempt, refused[1], refused[0], position)

    def of_cluster(self, job: Waiting, position: int) -> Short:
        """Not even the whole cluster could hold it."""
        where = f"the group {job.group}" if job.group else "the cluster"
        sentence = f"needs {_wanted(job)}; {where} has not that many, used or free"
        return Short(job.job_id, job.version, job.attempt, sentence, Shortage.CLUSTER, position)

    def of_turn(self, job: Waiting, position: int) -> Short:
        """Behind the head of the line, and what the head leaves over does not suit it."""
        sentence, blockers, at = self._behind
        return Short(job.job_id, job.version, job.attempt, sentence, Shortage.TURN, position, blockers, at)

    def of_own(self, job: Waiting, position: int) -> Short:
        """It takes its own instances only, and waits for some of them."""
        missing = [one for one in job.last if self._room.free_for(one, job) < job.gpus and one not in self._room.held]
        sentence = f"waits for its own instances: {', '.join(missing) or 'their repair to be reported'}"
        return Short(job.job_id, job.version, job.attempt, sentence, Shortage.OWN, position)

    def of_room(self, job: Waiting, position: int, leavers: Sequence[str]) -> Short:
        """Others are being suspended for it."""
        sentence = f"needs {_wanted(job)}; waits for {_few(leavers)} to make room"
        return Short(job.job_id, job.version, job.attempt, sentence, Shortage.ROOM, position, tuple(leavers[:NAMED]))

    def of_gpus(self, job: Waiting, position: int, fitting: int, gap: Gap | None = None) -> Short:
        """Its turn has come, only its GPUs have not."""
        blockers: tuple[str, ...] = ()
        at = None
        if gap is not None:
            at = gap.reservation.at
            blockers = self._blockers(gap.reservation.hosts)
            self._behind = (f"waits behind {job.job_id}", (job.job_id,), at)
        sentence = f"needs {_wanted(job)}; {fitting} are free"
        return Short(job.job_id, job.version, job.attempt, sentence, Shortage.GPUS, position, blockers, at)

    def _blockers(self, hosts: Collection[str]) -> tuple[str, ...]:
        """The jobs that hold what is promised, those that end last first."""
        holders = {one.job_id: self._occupancy.ends_in(one) for host in hosts for one in self._occupancy.on(host)}
        return tuple(sorted(holders, key=lambda one: (-holders[one], one))[:NAMED])


def _wanted(job: Waiting) -> str:
    return f"{job.nodes} instance(s) with {job.gpus} GPU(s) each"


def _few(names: Sequence[str]) -> str:
    rest = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {rest} more" if rest > 0 else "")
