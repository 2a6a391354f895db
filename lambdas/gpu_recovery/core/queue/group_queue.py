"""One group's line during a pass: each job in turn starts, has room made for it, or hears why it waits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from gpu_recovery.core.policy import RecoveryPolicy
from gpu_recovery.core.queue.backfill import BackfillWindow
from gpu_recovery.core.queue.host_selection import HostPool
from gpu_recovery.core.queue.preemption import Preemption
from gpu_recovery.core.queue.priority import Priority
from gpu_recovery.core.queue.quota_admission import QuotaAdmission
from gpu_recovery.core.queue.release_forecast import ReleaseForecast
from gpu_recovery.core.queue.snapshot import (
    Assignment,
    Host,
    Rejection,
    RejectionKind,
    RunningJob,
    Suspension,
    WaitingJob,
)
from gpu_recovery.core.queue.wait_reasons import WaitReasons


@dataclass(slots=True)
class PassState:
    """What all groups of a pass have in common."""

    policy: RecoveryPolicy
    at: datetime
    quota: QuotaAdmission
    suspensions_left: int


class GroupQueue:
    """The line of one group, asked job by job in order."""

    def __init__(self, hosts: Iterable[Host], running: Iterable[RunningJob], shared: PassState) -> None:
        self.shared = shared
        self.hosts = HostPool(hosts, shared.at)
        self.forecast = ReleaseForecast(running, shared.at)
        self.preemption = Preemption(self.hosts, self.forecast, shared.quota, shared.policy, shared.at)
        self.backfill_window: BackfillWindow | None = None
        self.suspensions: list[Suspension] = []
        self.highest_waiting: Priority | None = None
        self._wait_reasons = WaitReasons(self.hosts, self.forecast)
        self._position = 0

    def admit(self, job: WaitingJob) -> Assignment | Rejection:
        """Where the next job in line starts, or why it waits."""
        self._position += 1
        # 2. Quota: what its user may not have keeps nobody else waiting.
        refused = self.shared.quota.refusal(job)
        if refused is not None and refused[0] is not RejectionKind.JOBS:
            return self._wait_reasons.of_quota(job, self._position, refused)
        if not self.hosts.could_fit(job):
            return self._wait_reasons.of_cluster(job, self._position)
        if refused is not None:
            return self._replace(job) or self._wait_reasons.of_quota(job, self._position, refused)
        # 3. Packing; 5. once somebody heads the line, only into what that job leaves over.
        gap = self.backfill_window
        chosen = self.hosts.choose(job, may_use_kept=gap is not None and gap.admits(job))
        if chosen is None:
            return self._wait(job)
        self.shared.quota.charge(job)
        self.forecast.given(chosen, job.gpus, job.runs_for_s)
        return self.hosts.assign(job, chosen)

    def _replace(self, job: WaitingJob) -> Rejection | None:
        """As many jobs run as may: it waits for those whose place it takes, as far as it needs their GPUs too."""
        self._waits(job)
        if self.backfill_window is not None or self.hosts.fitting(job) >= job.nodes:
            return None
        leavers = self._preempt(job)
        if not leavers:
            return None
        self.shared.quota.charge(job)
        return self._wait_reasons.of_preemption(job, self._position, leavers)

    def _waits(self, job: WaitingJob) -> None:
        if self.highest_waiting is None or job.priority > self.highest_waiting:
            self.highest_waiting = job.priority

    def _wait(self, job: WaitingJob) -> Rejection:
        """4. It does not fit: what is kept for it, and what it is told."""
        position = self._position
        self._waits(job)
        if self.backfill_window is not None:
            if job.recovering:
                self.hosts.hold_for(job)
            return self._wait_reasons.of_turn(job, position)
        if job.recovering and job.own_only:
            short = self._wait_reasons.of_own(job, position)
            self.hosts.hold_for(job)
            return short
        # 6. Preemption: a place that is being made is as good as taken, and asked for once.
        leavers = self._preempt(job)
        if leavers:
            self.shared.quota.charge(job)
            return self._wait_reasons.of_preemption(job, position, leavers)
        fitting = self.hosts.fitting(job)
        self.shared.quota.charge(job)
        if job.recovering:
            # Its turn has come, only its instances have not: what fits it is kept, the rest may go to others.
            self.hosts.hold_for(job)
            return self._wait_reasons.of_gpus(job, position, fitting)
        self.backfill_window = BackfillWindow(job, self.hosts, self.forecast)
        return self._wait_reasons.of_gpus(job, position, fitting, self.backfill_window)

    def _preempt(self, job: WaitingJob) -> list[str]:
        """The jobs that leave so that `job` can start; none if that cannot be. All it waits for is kept for it."""
        missing = job.nodes - self.hosts.fitting(job)
        coming = self._vacated_soon(job)[:missing]
        need = missing - len(coming)
        victims: list[RunningJob] | None = []
        if need > 0:
            victims = self.preemption.victims(job, need, coming, self.shared.suspensions_left)
        if victims is None or not self.shared.quota.replaces(job, victims):
            return []
        if victims:
            told, freed = self.preemption.suspend(job, victims, need, coming)
            self.suspensions += told
            self.shared.suspensions_left -= len(told)
            self.forecast.vacated(victims)
            self.shared.quota.vacated(victims)
            coming += freed
        self.forecast.promised(coming)
        self._reserve(job, coming)
        return self.forecast.leavers(coming)

    def _reserve(self, job: WaitingJob, coming: list[str]) -> None:
        """Keep for the job the hosts that come to it, and as many that are free already as it needs beside them."""
        room = self.hosts
        own = sum(free >= job.gpus for free in room.reserved.get(job.job_id, {}).values())
        survivors = [one for one in dict.fromkeys(job.last) if room.open.free.get(one, 0) >= job.gpus]
        kept = coming + (survivors[: job.nodes - len(coming) - own] if job.recovering else [])
        for host_id in kept:
            room.close_host(host_id)
        for host_id in room.open.pick(job.nodes - len(kept) - own, job.gpus, kept):
            room.close_host(host_id)

    def _vacated_soon(self, job: WaitingJob) -> list[str]:
        """Hosts that are being vacated and will then fit the job, those that are kept for it first. Whoever suspended
        a large gang may not need all its hosts: the others come to who is next in line."""
        room, found = self.hosts, []
        for host_id, gpus in self.forecast.vacating().items():
            host = room.hosts.get(host_id)
            if host is None or not host.usable or host_id in room.held or room.owner(host) not in ("", job.job_id):
                continue
            if room.free_for(host_id, job) < job.gpus <= room.free_for(host_id, job) + gpus:
                found.append((room.owner(host) != job.job_id, host_id))
        shown_late = (one for one in room.vacated(job, self.forecast.held) if one not in room.held)
        return list(dict.fromkeys([*shown_late, *(host_id for _, host_id in sorted(found))]))
