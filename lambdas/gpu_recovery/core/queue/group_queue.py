"""One group's line during a pass: each job in turn starts, has room made for it, or hears why it waits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from gpu_recovery.core.policy import RecoveryPolicy
from gpu_recovery.core.queue.backfill import Gap
from gpu_recovery.core.queue.host_selection import Room
from gpu_recovery.core.queue.preemption import Preemption
from gpu_recovery.core.queue.priority import Priority
from gpu_recovery.core.queue.quota_admission import Allowance
from gpu_recovery.core.queue.release_forecast import Occupancy
from gpu_recovery.core.queue.snapshot import Assignment, Host, Running, Short, Shortage, Suspension, Waiting
from gpu_recovery.core.queue.wait_reasons import Reasons


@dataclass(slots=True)
class Shared:
    """What all groups of a pass have in common."""

    policy: RecoveryPolicy
    at: datetime
    allowance: Allowance
    suspensions_left: int


class Line:
    """The line of one group, asked job by job in order."""

    def __init__(self, hosts: Iterable[Host], running: Iterable[Running], shared: Shared) -> None:
        self.shared = shared
        self.room = Room(hosts, shared.at)
        self.occupancy = Occupancy(running, shared.at)
        self.preemption = Preemption(self.room, self.occupancy, shared.allowance, shared.policy, shared.at)
        self.gap: Gap | None = None
        self.suspensions: list[Suspension] = []
        self.highest_waiting: Priority | None = None
        self._reasons = Reasons(self.room, self.occupancy)
        self._position = 0

    def seat(self, job: Waiting) -> Assignment | Short:
        """Where the next job in line starts, or why it waits."""
        self._position += 1
        # 2. Quota: what its user may not have keeps nobody else waiting.
        refused = self.shared.allowance.refusal(job)
        if refused is not None and refused[0] is not Shortage.JOBS:
            return self._reasons.of_quota(job, self._position, refused)
        if not self.room.could_fit(job):
            return self._reasons.of_cluster(job, self._position)
        if refused is not None:
            return self._replace(job) or self._reasons.of_quota(job, self._position, refused)
        # 3. Packing; 5. once somebody heads the line, only into what that job leaves over.
        gap = self.gap
        chosen = self.room.choose(job, may_use_kept=gap is not None and gap.admits(job))
        if chosen is None:
            return self._wait(job)
        self.shared.allowance.charge(job)
        self.occupancy.given(chosen, job.gpus, job.runs_for_s)
        return self.room.give(job, chosen)

    def _replace(self, job: Waiting) -> Short | None:
        """As many jobs run as may: it waits for those whose place it takes, as far as it needs their GPUs too."""
        self._waits(job)
        if self.gap is not None or self.room.fitting(job) >= job.nodes:
            return None
        leavers = self._make_room(job)
        if not leavers:
            return None
        self.shared.allowance.charge(job)
        return self._reasons.of_room(job, self._position, leavers)

    def _waits(self, job: Waiting) -> None:
        if self.highest_waiting is None or job.priority > self.highest_waiting:
            self.highest_waiting = job.priority

    def _wait(self, job: Waiting) -> Short:
        """4. It does not fit: what is kept for it, and what it is told."""
        position = self._position
        self._waits(job)
        if self.gap is not None:
            if job.recovering:
                self.room.hold(job)
            return self._reasons.of_turn(job, position)
        if job.recovering and job.own_only:
            short = self._reasons.of_own(job, position)
            self.room.hold(job)
            return short
        # 6. Preemption: a place that is being made is as good as taken, and asked for once.
        leavers = self._make_room(job)
        if leavers:
            self.shared.allowance.charge(job)
            return self._reasons.of_room(job, position, leavers)
        fitting = self.room.fitting(job)
        self.shared.allowance.charge(job)
        if job.recovering:
            # Its turn has come, only its instances have not: what fits it is kept, the rest may go to others.
            self.room.hold(job)
            return self._reasons.of_gpus(job, position, fitting)
        self.gap = Gap(job, self.room, self.occupancy)
        return self._reasons.of_gpus(job, position, fitting, self.gap)

    def _make_room(self, job: Waiting) -> list[str]:
        """The jobs that leave so that `job` can start; none if that cannot be. All it waits for is kept for it."""
        missing = job.nodes - self.room.fitting(job)
        coming = self._coming(job)[:missing]
        need = missing - len(coming)
        victims: list[Running] | None = []
        if need > 0:
            victims = self.preemption.victims(job, need, coming, self.shared.suspensions_left)
        if victims is None or not self.shared.allowance.replaces(job, victims):
            return []
        if victims:
            told, freed = self.preemption.suspend(job, victims, need, coming)
            self.suspensions += told
            self.shared.suspensions_left -= len(told)
            self.occupancy.vacated(victims)
            self.shared.allowance.vacated(victims)
            coming += freed
        self.occupancy.promised(coming)
        self._keep(job, coming)
        return self.occupancy.leavers(coming)

    def _keep(self, job: Waiting, coming: list[str]) -> None:
        """Keep for the job the hosts that come to it, and as many that are free already as it needs beside them."""
        room = self.room
        own = sum(free >= job.gpus for free in room.reserved.get(job.job_id, {}).values())
        survivors = [one for one in dict.fromkeys(job.last) if room.open.free.get(one, 0) >= job.gpus]
        kept = coming + (survivors[: job.nodes - len(coming) - own] if job.recovering else [])
        for host_id in kept:
            room.keep_back(host_id)
        for host_id in room.open.pick(job.nodes - len(kept) - own, job.gpus, kept):
            room.keep_back(host_id)

    def _coming(self, job: Waiting) -> list[str]:
        """Hosts that are being vacated and will then fit the job, those that are kept for it first. Whoever suspended
        a large gang may not need all its hosts: the others come to who is next in line."""
        room, found = self.room, []
        for host_id, gpus in self.occupancy.vacating().items():
            host = room.hosts.get(host_id)
            if host is None or not host.usable or host_id in room.held or room.owner(host) not in ("", job.job_id):
                continue
            if room.free_for(host_id, job) < job.gpus <= room.free_for(host_id, job) + gpus:
                found.append((room.owner(host) != job.job_id, host_id))
        shown_late = (one for one in room.vacated(job, self.occupancy.held) if one not in room.held)
        return list(dict.fromkeys([*shown_late, *(host_id for _, host_id in sorted(found))]))
