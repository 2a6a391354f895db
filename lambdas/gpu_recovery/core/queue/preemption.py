"""Phase 6, preemption: which running jobs are suspended for a job of higher priority.

Few and cheap jobs are suspended, and only if that is enough for the job to start.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from gpu_recovery.core.lazy_dataclass import frozen_dataclass
from gpu_recovery.core.policy import RecoveryPolicy
from gpu_recovery.core.queue.host_selection import HostPool
from gpu_recovery.core.queue.priority import Priority
from gpu_recovery.core.queue.quota_admission import QuotaAdmission
from gpu_recovery.core.queue.release_forecast import ReleaseForecast, priority_of
from gpu_recovery.core.queue.snapshot import RunningJob, Suspension, WaitingJob

NAMED = 2
"""Upper bound of the protected jobs that a wait reason names."""
Cost = tuple[bool, Priority, float, float, str]
"""Sort key of the cost of suspending a job, cheapest first.

Jobs over their quota come first, then the lowest priority, then the least work lost (GPU-seconds since the last
checkpoint), then the newest job.
"""


@frozen_dataclass()
class Bundle:
    """Jobs that must leave together to free the hosts, ordered by cost, the most expensive last."""

    cost: Cost
    highest: Priority
    jobs: tuple[RunningJob, ...]
    hosts: tuple[str, ...]


class Preemption:
    """The possible victims of one group."""

    def __init__(
        self,
        pool: HostPool,
        forecast: ReleaseForecast,
        quota: QuotaAdmission,
        policy: RecoveryPolicy,
        now: datetime,
    ) -> None:
        self._hosts, self._forecast, self._quota = pool, forecast, quota
        self._policy, self._now = policy, now
        self._chosen: set[str] = set()
        self._costs: dict[str, Cost] = {}
        self._bundles: dict[tuple[int, bool], list[Bundle]] = {}
        self._movable: dict[bool, dict[str, list[RunningJob]]] = {}
        running = [job for job in forecast.running if not job.leaving]
        self._lowest = min((priority_of(job, now) for job in running), default=Priority.EXTREME_HIGH)
        self.capped = False
        """True if a job was exempt only by the number of its suspensions, or if the fleet's budget was used up."""

    def victims(
        self, job: WaitingJob, need: int, spoken_for: Iterable[str], budget: int, *, unlimited: bool = False
    ) -> list[RunningJob] | None:
        """Return a minimal set of jobs that free `need` more hosts for `job`; None if there is no such set.

        Neither a protected time nor a limit of suspensions makes a job of priority EXTREME_HIGH wait.

        Args:
            need: the number of hosts that the job lacks.
            spoken_for: hosts that the job already counts on.
            budget: the number of suspensions that the whole fleet has left.
            unlimited: whether protected times and limits of suspensions are ignored for any priority.
        """
        unlimited = unlimited or job.priority is Priority.EXTREME_HIGH
        if job.priority <= self._lowest or need < 1:
            return None
        taken = {*spoken_for}
        chosen: dict[str, RunningJob] = {}
        freed: set[str] = set()
        while len(freed) < need:
            best = self._best_bundle(job, need - len(freed), freed | taken, unlimited)
            if best is None:
                return None
            chosen |= {victim.job_id: victim for victim in best.jobs}
            if len(chosen) > budget and not unlimited:
                self.capped = True
                return None
            freed = {host for host in self._freed(job, chosen) if host not in taken}
        return self._pruned(job, need, chosen, taken)

    def limits_on(self, job: WaitingJob, need: int, spoken_for: Iterable[str], budget: int) -> str:
        """Return which protected times and limits of suspensions make `job` wait, in words; "" if none does.

        They do if `job` could start by suspending the named jobs, were there no such limits.
        """
        victims = self.victims(job, need, spoken_for, budget, unlimited=True)
        if not victims:
            return ""
        told, window = [], f"in the last {self._policy.suspensions_window_s // 60} minutes"
        for victim in victims:
            name, until = f"{priority_of(victim, self._now).name} job {victim.job_id}", self.protected_until(victim)
            if until > self._now:
                told.append(f"{name} is protected until {until:%H:%M} UTC")
            elif victim.suspensions >= self._policy.suspensions_max:
                told.append(f"{name} was suspended {victim.suspensions} times {window}")
        if not told and len(victims) > budget:
            told.append(f"as many jobs as the fleet allows were suspended {window}")
        rest = len(told) - NAMED
        return ", ".join(told[:NAMED]) + (f" and {rest} more" if rest > 0 else "")

    def suspend(
        self, job: WaitingJob, victims: Iterable[RunningJob], need: int, spoken_for: Iterable[str]
    ) -> tuple[list[Suspension], list[str]]:
        """Return the suspensions, and the `need` hosts of the victims that are kept for `job`."""
        by_id = {victim.job_id: victim for victim in victims}
        taken = {*spoken_for}
        kept = [host for host in self._freed(job, by_id) if host not in taken][:need]
        suspensions = []
        for victim in by_id.values():
            self._chosen.add(victim.job_id)
            hosts = tuple(host for host in kept if host in victim.hosts)
            sentence = f"makes room for {job.job_id} of priority {job.priority.name}"
            suspensions.append(Suspension(victim.job_id, victim.version, victim.attempt, job.job_id, hosts, sentence))
        return suspensions, kept

    def _freed(self, job: WaitingJob, victims: Mapping[str, RunningJob]) -> list[str]:
        """Return the hosts, sorted, that become free for `job` when the victims leave."""
        touched = sorted({host for victim in victims.values() for host in victim.hosts})
        return [host for host in touched if self._is_candidate(host, job) and self._frees(host, job, victims)]

    def _frees(self, host_id: str, job: WaitingJob, victims: Mapping[str, RunningJob]) -> bool:
        """Return whether the host becomes free for `job` when the victims leave, and is not free for it before."""
        free = self._hosts.free_for(host_id, job)
        given_back = sum(running.gpus for running in self._forecast.on(host_id) if running.job_id in victims)
        return free < job.gpus <= free + given_back

    def _pruned(
        self, job: WaitingJob, need: int, chosen: Mapping[str, RunningJob], taken: set[str]
    ) -> list[RunningJob]:
        """Return `chosen` without unnecessary jobs; the most expensive jobs are dropped first."""
        left = dict(chosen)
        if len(left) == 1:
            return list(left.values())
        for candidate in sorted(chosen.values(), key=self._cost, reverse=True):
            without = {job_id: running for job_id, running in left.items() if job_id != candidate.job_id}
            if sum(host not in taken for host in self._freed(job, without)) >= need:
                left = without
        return sorted(left.values(), key=self._cost)

    def _bundles_for(self, job: WaitingJob, unlimited: bool) -> list[Bundle]:
        """Return the bundles that could be vacated for ranks of this size, the cheapest last.

        The bundles are computed once per size. Bundles with jobs that were chosen meanwhile are removed.
        """
        key = (job.gpus, unlimited)
        if key not in self._bundles:
            hosts_of: dict[tuple[str, ...], list[str]] = {}
            jobs_of: dict[tuple[str, ...], tuple[RunningJob, ...]] = {}
            for host_id, movable in self._movable_jobs(unlimited).items():
                leave = self._who_must_leave(host_id, movable, job)
                if leave:
                    names = tuple(running.job_id for running in leave)
                    hosts_of.setdefault(names, []).append(host_id)
                    jobs_of[names] = leave
            bundles = [self._bundle(jobs_of[names], tuple(hosts)) for names, hosts in hosts_of.items()]
            self._bundles[key] = sorted(bundles, key=lambda bundle: bundle.cost, reverse=True)
        offered = self._bundles[key]
        while offered and self._is_leaving(offered[-1]):
            offered.pop()
        return offered

    def _movable_jobs(self, unlimited: bool) -> dict[str, list[RunningJob]]:
        """Return by host the jobs that could be suspended at all, the cheapest first."""
        if unlimited not in self._movable:
            by_host = self._movable[unlimited] = {}
            movable = (job for job in self._forecast.running if self._is_movable(job, unlimited))
            for running in sorted(movable, key=self._cost):
                for host_id in running.hosts:
                    by_host.setdefault(host_id, []).append(running)
        return self._movable[unlimited]

    def _who_must_leave(self, host_id: str, movable: Iterable[RunningJob], job: WaitingJob) -> tuple[RunningJob, ...]:
        """Return the cheapest jobs that free enough GPUs of the host for one rank; empty if that is not possible."""
        if not self._is_candidate(host_id, job):
            return ()
        missing = job.gpus - self._hosts.free_for(host_id, job)
        leave: list[RunningJob] = []
        for running in movable:
            if missing <= 0:
                break
            leave.append(running)
            missing -= running.gpus
        return tuple(leave) if missing <= 0 else ()

    def _is_candidate(self, host_id: str, job: WaitingJob) -> bool:
        """Return whether the host could serve a rank of `job` once it is vacated."""
        host = self._hosts.hosts.get(host_id)
        return (
            host is not None
            and host.usable
            and host.gpus >= job.gpus
            and host.leaves_at is None
            and host_id not in self._hosts.held
            and host_id not in self._hosts.started
            and self._hosts.owner(host) in ("", job.job_id)
        )

    def protected_until(self, running: RunningJob) -> datetime:
        """Return the end of the time within which the job is suspended only for EXTREME_HIGH."""
        return running.since + timedelta(seconds=self._policy.preemption_protect_s)

    def _is_movable(self, running: RunningJob, unlimited: bool) -> bool:
        """Return whether the job may be suspended: allowed, past its protected time, not suspended too often."""
        if running.leaving or not running.can_suspend:
            return False
        if unlimited:
            return True
        if self.protected_until(running) > self._now:
            return False
        if running.suspensions >= self._policy.suspensions_max:
            self.capped = True
            return False
        return True

    def _best_bundle(self, job: WaitingJob, need: int, done: set[str], unlimited: bool) -> Bundle | None:
        """Choose a bundle of the lowest priority at hand: the cheapest that is enough, else that with most hosts."""
        most, gain = None, 0
        for bundle in reversed(self._bundles_for(job, unlimited)):
            if most is not None and bundle.cost[:2] != most.cost[:2]:
                break
            if not self._may_suspend(bundle, job):
                continue
            frees = sum(host not in done and self._is_candidate(host, job) for host in bundle.hosts)
            if frees >= need:
                return bundle
            if frees > gain:
                most, gain = bundle, frees
        return most

    def _may_suspend(self, bundle: Bundle, job: WaitingJob) -> bool:
        """Return whether the bundle may be suspended for `job`.

        Its jobs must have a lower priority and must not already leave for another job. Jobs of the same user and the
        same submitted priority do not interrupt each other.
        """
        return (
            bundle.highest < job.priority
            and not self._is_leaving(bundle)
            and not any(running.user == job.user and running.asked == job.asked for running in bundle.jobs)
        )

    def _is_leaving(self, bundle: Bundle) -> bool:
        """Return whether a job of the bundle is already suspended for another job."""
        return any(running.job_id in self._chosen for running in bundle.jobs)

    def _cost(self, running: RunningJob) -> Cost:
        """Return the cost of suspending the job, computed once per pass."""
        if running.job_id in self._costs:
            return self._costs[running.job_id]
        done_since = max(running.since, running.checkpoint_at or running.since)
        lost = running.gpus * len(running.hosts) * (self._now - done_since).total_seconds()
        over = self._quota.is_over(running)
        cost = (not over, priority_of(running, self._now), lost, -running.since.timestamp(), running.job_id)
        return self._costs.setdefault(running.job_id, cost)

    def _bundle(self, jobs: tuple[RunningJob, ...], hosts: tuple[str, ...]) -> Bundle:
        """Combine jobs and hosts into a bundle.

        The bundle is over quota only if all jobs are. Its priority is the highest among them, and its lost work is the
        sum.
        """
        costs = [self._cost(running) for running in jobs]
        worst, highest = max(costs), max(cost[1] for cost in costs)
        return Bundle((worst[0], highest, sum(cost[2] for cost in costs), worst[3], worst[4]), highest, jobs, hosts)
