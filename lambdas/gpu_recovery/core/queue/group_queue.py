"""Phase 4, group queue: each job of one node group starts, preempts other jobs, or waits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from gpu_recovery.core.fleet import HoldingLimit
from gpu_recovery.core.policy import RecoveryPolicy
from gpu_recovery.core.queue.backfill import BackfillWindow
from gpu_recovery.core.queue.host_selection import HostPool
from gpu_recovery.core.queue.launch_holds import LaunchHolds
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
from gpu_recovery.core.queue.unusable_hosts import UnusableHosts
from gpu_recovery.core.queue.wait_reasons import WaitReasons
from gpu_recovery.core.queue.width import Room, Width, choose_width, is_avoided


@dataclass(slots=True)
class PassState:
    """What the queues of all groups share during a pass."""

    policy: RecoveryPolicy
    at: datetime
    quota: QuotaAdmission
    suspensions_left: int
    launch_holds: LaunchHolds
    repairs_held_by: HoldingLimit | None = None


class GroupQueue:
    """The queue of one group. `admit` is called for each job, in queue order."""

    def __init__(self, hosts: Sequence[Host], running: Iterable[RunningJob], shared: PassState) -> None:
        self.shared = shared
        self.hosts = HostPool(hosts, shared.at)
        self.forecast = ReleaseForecast(running, shared.at)
        self.preemption = Preemption(self.hosts, self.forecast, shared.quota, shared.policy, shared.at)
        self.backfill_window: BackfillWindow | None = None
        self.suspensions: list[Suspension] = []
        self.highest_waiting: Priority | None = None
        self.width_waits: list[datetime] = []
        self._wait_reasons = WaitReasons(self.hosts, self.forecast, UnusableHosts(hosts, shared.repairs_held_by))
        self._position = 0

    def admit(self, job: WaitingJob) -> Assignment | Rejection:
        """Return where the next job starts, or why it waits."""
        self._position += 1
        # A job that cannot be launched does not block the jobs behind it.
        hold = self.shared.launch_holds.blocking(job)
        if hold is not None:
            return self._wait_reasons.of_permission(job, self._position, hold)
        window = self.backfill_window
        may_backfill = window is not None and window.admits(job)
        width = self._width(job, may_backfill)
        job = replace(job, nodes=width.nodes)
        # 2. Quota: a job over its quota does not block the jobs behind it.
        refused = self.shared.quota.refusal(job)
        if refused is not None and window is not None and window.leaves_quota(job):
            # The job ends before the head starts, so the quota that is kept for the head is free until then.
            refused = self.shared.quota.refusal(job, before=window.job)
        if refused is not None and refused[0] is not RejectionKind.JOBS:
            return self._wait_reasons.of_quota(job, self._position, refused)
        if not self.hosts.could_fit(job):
            return self._wait_reasons.of_cluster(job, self._position)
        if refused is not None:
            return self._preempt_for_job_limit(job) or self._wait_reasons.of_quota(job, self._position, refused)
        # 3. Packing; 5. behind a waiting head, only into what the head leaves over.
        chosen = self.hosts.choose(job, may_backfill=may_backfill)
        if chosen is None:
            return self._wait(job)
        if width.until is not None:
            return self._wait_for_width(job, chosen, width.until)
        self.shared.quota.charge(job)
        self.shared.launch_holds.begin_launch(job)
        self.forecast.assign(chosen, job.gpus, job.runs_for_s)
        return replace(self.hosts.assign(job, chosen), is_probe=self.shared.launch_holds.is_probe(job))

    def _width(self, job: WaitingJob, may_backfill: bool) -> Width:
        """Return the width with which the job takes part in this pass."""
        if job.widths is None:
            return Width(job.nodes)
        free = self.hosts.fitting(job, may_backfill=may_backfill)
        if job.avoids:
            avoided = self.hosts.fitting_among(job.avoids, job, may_backfill=may_backfill)
            wanted = free - sum(is_avoided(host, job.avoids) for host in avoided)
            free = max(wanted, min(free, job.widths[0]))
        room = Room(free, self.hosts.large_enough(job), self.shared.quota.room(job))
        return choose_width(job, room, timedelta(seconds=self.shared.policy.elastic_wait_s), self.shared.at)

    def _wait_for_width(self, job: WaitingJob, chosen: Iterable[str], until: datetime) -> Rejection:
        """Keep the hosts on which an elastic job could start, while it waits for a larger width."""
        self._record_waiting(job)
        self.width_waits.append(until)
        for host_id in chosen:
            self.hosts.close_host(host_id)
        self.shared.quota.charge(job, is_kept=True)
        return self._wait_reasons.of_width(job, self._position, until, self.shared.at)

    def _preempt_for_job_limit(self, job: WaitingJob) -> Rejection | None:
        """Preempt jobs for a job that the limit of running jobs blocks; None if that is not possible.

        The job replaces its victims, so the number of running jobs does not rise. This is done only if the job needs
        their GPUs too.
        """
        self._record_waiting(job)
        is_head = self.backfill_window is None and self.shared.launch_holds.may_delay_others(job)
        if not is_head or self.hosts.fitting(job) >= job.nodes:
            return None
        leaving = self._preempt(job)
        if not leaving:
            return None
        self.shared.quota.charge(job, is_kept=True)
        return self._wait_reasons.of_preemption(job, self._position, leaving)

    def _record_waiting(self, job: WaitingJob) -> None:
        """Record the highest priority of the waiting jobs."""
        if self.highest_waiting is None or job.priority > self.highest_waiting:
            self.highest_waiting = job.priority

    def _wait(self, job: WaitingJob) -> Rejection:
        """4. Handle a job that does not fit: preempt for it, keep hosts for it, and return its wait reason."""
        position = self._position
        self._record_waiting(job)
        may_delay_others = self.shared.launch_holds.may_delay_others(job)
        if self.backfill_window is not None:
            if job.recovering and may_delay_others:
                self.hosts.hold_for(job)
            return self._wait_reasons.of_queue_order(job, position)
        if not may_delay_others:
            return self._wait_reasons.of_gpus(job, position, self.hosts.fitting(job))
        if job.recovering and job.own_only:
            rejection = self._wait_reasons.of_own(job, position)
            self.hosts.hold_for(job)
            return rejection
        # 6. Preemption: hosts that are being vacated for the job count as taken, and are requested once.
        leaving = self._preempt(job)
        if leaving:
            self.shared.quota.charge(job, is_kept=True)
            return self._wait_reasons.of_preemption(job, position, leaving)
        fitting = self.hosts.fitting(job)
        limits = self._limits_of_preemption(job, fitting)
        self.shared.quota.charge(job, is_kept=True)
        if job.recovering:
            # The job is next, but its instances are not free. Those that fit are kept; others may use the rest.
            self.hosts.hold_for(job)
            return self._wait_reasons.of_gpus(job, position, fitting, limits=limits)
        self.backfill_window = BackfillWindow(job, self.hosts, self.forecast, self.shared.policy)
        return self._wait_reasons.of_gpus(job, position, fitting, self.backfill_window, limits)

    def _limits_of_preemption(self, job: WaitingJob, fitting: int) -> str:
        """Return which limits of preemption make the job wait, in words; "" if none does."""
        coming = self._vacated_soon(job)[: job.nodes - fitting]
        missing = job.nodes - fitting - len(coming)
        return self.preemption.limits_on(job, missing, coming, self.shared.suspensions_left)

    def _preempt(self, job: WaitingJob) -> list[str]:
        """Preempt jobs for `job`, and keep all hosts that it waits for.

        Returns:
            The ids of the jobs that leave so that `job` can start; empty if that is not possible.
        """
        missing = job.nodes - self.hosts.fitting(job)
        coming = self._vacated_soon(job)[:missing]
        need = missing - len(coming)
        victims: list[RunningJob] | None = []
        if need > 0:
            victims = self.preemption.victims(job, need, coming, self.shared.suspensions_left)
        if victims is None or not self.shared.quota.replaces(job, victims):
            return []
        if victims:
            orders, freed = self.preemption.suspend(job, victims, need, coming)
            self.suspensions += orders
            self.shared.suspensions_left = max(0, self.shared.suspensions_left - len(orders))
            self.forecast.record_leaving(victims)
            self.shared.quota.count_leaving(victims)
            coming += freed
        self.forecast.promised(coming)
        self._reserve(job, coming)
        leavers = self.forecast.leavers(coming)
        if leavers:
            self.shared.launch_holds.begin_launch(job)
        return leavers

    def _reserve(self, job: WaitingJob, coming: list[str]) -> None:
        """Keep the hosts that are being vacated for the job, and as many free hosts as it needs beside them."""
        pool = self.hosts
        own = sum(free >= job.gpus for free in pool.reserved.get(job.job_id, {}).values())
        survivors = [host_id for host_id in dict.fromkeys(job.last) if pool.open.free.get(host_id, 0) >= job.gpus]
        kept = coming + (survivors[: job.nodes - len(coming) - own] if job.recovering else [])
        for host_id in kept:
            pool.close_host(host_id)
        for host_id in pool.open.pick(job.nodes - len(kept) - own, job.gpus, kept):
            pool.close_host(host_id)

    def _vacated_soon(self, job: WaitingJob) -> list[str]:
        """Return hosts that are being vacated and will then fit the job, hosts reserved for the job first.

        A job for which a large gang was suspended may not need all hosts of that gang. The next job in the queue gets
        the others.
        """
        pool, fitting = self.hosts, []
        for host_id, gpus in self.forecast.vacating().items():
            host = pool.hosts.get(host_id)
            if host is None or not host.usable or host_id in pool.held or pool.owner(host) not in ("", job.job_id):
                continue
            if pool.free_for(host_id, job) < job.gpus <= pool.free_for(host_id, job) + gpus:
                fitting.append((pool.owner(host) != job.job_id, host_id))
        shown_late = (host_id for host_id in pool.vacated_hosts(job, self.forecast.held) if host_id not in pool.held)
        return list(dict.fromkeys([*shown_late, *(host_id for _, host_id in sorted(fitting))]))
