"""Phase 6: preemption. Which running jobs make room for one of a higher priority: few, cheap, and none in vain."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from gpu_recovery.core.policy import RecoveryPolicy
from gpu_recovery.core.queue.host_selection import HostPool
from gpu_recovery.core.queue.priority import Priority
from gpu_recovery.core.queue.quota_admission import QuotaAdmission
from gpu_recovery.core.queue.release_forecast import ReleaseForecast, priority_of
from gpu_recovery.core.queue.snapshot import RunningJob, Suspension, WaitingJob

Cost = tuple[bool, Priority, float, float, str]
"""What it costs to suspend a job, to be compared: those over their quota first, then the lowest priority, then the
least work lost (GPU-seconds since the last checkpoint), then the newest."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """Jobs that have to leave together for the hosts to come free, the dearest last."""

    cost: Cost
    highest: Priority
    jobs: tuple[RunningJob, ...]
    hosts: tuple[str, ...]


class Preemption:
    """The victims that one group has to offer. `budget` is how many suspensions the whole fleet has left."""

    def __init__(
        self,
        room: HostPool,
        occupancy: ReleaseForecast,
        allowance: QuotaAdmission,
        policy: RecoveryPolicy,
        now: datetime,
    ) -> None:
        self._hosts, self._forecast, self._quota = room, occupancy, allowance
        self._policy, self._now = policy, now
        self._chosen: set[str] = set()
        self._costs: dict[str, Cost] = {}
        self._bundles: dict[int, list[Bundle]] = {}
        self._movable: dict[str, list[RunningJob]] | None = None
        running = [job for job in occupancy.running if not job.leaving]
        self._lowest = min((priority_of(job, now) for job in running), default=Priority.EXTREME_HIGH)
        self.capped = False
        """A job was spared for the number of its suspensions alone, or the budget of the fleet was spent."""

    def victims(self, job: WaitingJob, need: int, spoken_for: Iterable[str], budget: int) -> list[RunningJob] | None:
        """A minimal set of jobs whose hosts give `job` the `need` more that it lacks; None if there is none.

        spoken_for: hosts that the job counts on already.
        """
        if job.priority <= self._lowest or need < 1:
            return None
        taken = {*spoken_for}
        chosen: dict[str, RunningJob] = {}
        freed: set[str] = set()
        while len(freed) < need:
            best = self._best(job, need - len(freed), freed | taken)
            if best is None:
                return None
            chosen |= {one.job_id: one for one in best.jobs}
            if len(chosen) > budget:
                self.capped = True
                return None
            freed = {host for host in self._freed(job, chosen) if host not in taken}
        return self._pruned(job, need, chosen, taken)

    def suspend(
        self, job: WaitingJob, victims: Iterable[RunningJob], need: int, spoken_for: Iterable[str]
    ) -> tuple[list[Suspension], list[str]]:
        """The orders, and the `need` hosts of the victims that are kept for `job`."""
        by_id = {one.job_id: one for one in victims}
        taken = {*spoken_for}
        kept = [host for host in self._freed(job, by_id) if host not in taken][:need]
        told = []
        for one in by_id.values():
            self._chosen.add(one.job_id)
            hosts = tuple(host for host in kept if host in one.hosts)
            sentence = f"makes room for {job.job_id} of priority {job.priority.name}"
            told.append(Suspension(one.job_id, one.version, one.attempt, job.job_id, hosts, sentence))
        return told, kept

    def _freed(self, job: WaitingJob, victims: Mapping[str, RunningJob]) -> list[str]:
        """The hosts that are free for `job` once the victims have left, and were not before; in order."""
        touched = sorted({host for one in victims.values() for host in one.hosts})
        return [host for host in touched if self._is_candidate(host, job) and self._frees(host, job, victims)]

    def _frees(self, host_id: str, job: WaitingJob, victims: Mapping[str, RunningJob]) -> bool:
        free = self._hosts.free_for(host_id, job)
        given_back = sum(one.gpus for one in self._forecast.on(host_id) if one.job_id in victims)
        return free < job.gpus <= free + given_back

    def _pruned(
        self, job: WaitingJob, need: int, chosen: Mapping[str, RunningJob], taken: set[str]
    ) -> list[RunningJob]:
        """`chosen` without those that are not needed, the dearest spared first."""
        left = dict(chosen)
        if len(left) == 1:
            return list(left.values())
        for one in sorted(chosen.values(), key=self._cost, reverse=True):
            without = {job_id: other for job_id, other in left.items() if job_id != one.job_id}
            if sum(host not in taken for host in self._freed(job, without)) >= need:
                left = without
        return sorted(left.values(), key=self._cost)

    def _offered(self, job: WaitingJob) -> list[Bundle]:
        """What could be vacated for ranks of this size, the cheapest last; worked out once, less the chosen."""
        if job.gpus not in self._bundles:
            hosts_of: dict[tuple[str, ...], list[str]] = {}
            jobs_of: dict[tuple[str, ...], tuple[RunningJob, ...]] = {}
            for host_id, movable in self._on_hosts().items():
                leave = self._who_must_leave(host_id, movable, job)
                if leave:
                    names = tuple(one.job_id for one in leave)
                    hosts_of.setdefault(names, []).append(host_id)
                    jobs_of[names] = leave
            bundles = [self._bundle(jobs_of[names], tuple(hosts)) for names, hosts in hosts_of.items()]
            self._bundles[job.gpus] = sorted(bundles, key=lambda bundle: bundle.cost, reverse=True)
        offered = self._bundles[job.gpus]
        while offered and self._leaves(offered[-1]):
            offered.pop()
        return offered

    def _on_hosts(self) -> dict[str, list[RunningJob]]:
        """The jobs that could be suspended at all, by host, the cheapest first."""
        if self._movable is None:
            self._movable = {}
            for one in sorted((job for job in self._forecast.running if self._is_movable(job)), key=self._cost):
                for host_id in one.hosts:
                    self._movable.setdefault(host_id, []).append(one)
        return self._movable

    def _who_must_leave(self, host_id: str, movable: Iterable[RunningJob], job: WaitingJob) -> tuple[RunningJob, ...]:
        """The cheapest jobs that free enough GPUs of the host for one rank; none if it cannot be vacated."""
        if not self._is_candidate(host_id, job):
            return ()
        missing = job.gpus - self._hosts.free_for(host_id, job)
        leave: list[RunningJob] = []
        for one in movable:
            if missing <= 0:
                break
            leave.append(one)
            missing -= one.gpus
        return tuple(leave) if missing <= 0 else ()

    def _is_candidate(self, host_id: str, job: WaitingJob) -> bool:
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

    def _is_movable(self, one: RunningJob) -> bool:
        """Neither protected still nor suspended often, and ours to suspend."""
        if (
            one.leaving
            or not one.can_suspend
            or one.since + timedelta(seconds=self._policy.preemption_protect_s) > self._now
        ):
            return False
        if one.suspensions >= self._policy.suspensions_max:
            self.capped = True
            return False
        return True

    def _best(self, job: WaitingJob, need: int, done: set[str]) -> Bundle | None:
        """Of the lowest priority at hand: the cheapest that suffices alone, else the one that frees most."""
        most, gain = None, 0
        for bundle in reversed(self._offered(job)):
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
        """Never one of the same or a higher priority, nor one that leaves for somebody else already; and at one
        priority the jobs of a user do not interrupt each other (seed 003)."""
        return (
            bundle.highest < job.priority
            and not self._leaves(bundle)
            and not any(one.user == job.user and one.asked == job.asked for one in bundle.jobs)
        )

    def _leaves(self, bundle: Bundle) -> bool:
        """Whether one of it makes room for somebody already."""
        return any(one.job_id in self._chosen for one in bundle.jobs)

    def _cost(self, one: RunningJob) -> Cost:
        if one.job_id in self._costs:
            return self._costs[one.job_id]
        done_since = max(one.since, one.checkpoint_at or one.since)
        lost = one.gpus * len(one.hosts) * (self._now - done_since).total_seconds()
        over = self._quota.is_over(one)
        cost = (not over, priority_of(one, self._now), lost, -one.since.timestamp(), one.job_id)
        return self._costs.setdefault(one.job_id, cost)

    def _bundle(self, jobs: tuple[RunningJob, ...], hosts: tuple[str, ...]) -> Bundle:
        """Over their quota only if all are, of the highest priority among them, and the work of all is lost."""
        costs = [self._cost(one) for one in jobs]
        worst, highest = max(costs), max(cost[1] for cost in costs)
        return Bundle((worst[0], highest, sum(cost[2] for cost in costs), worst[3], worst[4]), highest, jobs, hosts)
