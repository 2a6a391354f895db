"""Phase 3, host selection: which hosts of one node group a job may use, and the choice among them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from gpu_recovery.core.queue.packing import OpenHosts
from gpu_recovery.core.queue.snapshot import Assignment, Host, WaitingJob


class HostPool:
    """The hosts of one group during a pass.

    open:      hosts that every job may use, with their free GPUs.
    backfill_hosts: hosts promised to the head of the queue, with their free GPUs: for jobs that end before it starts.
    reserved:  job id to the hosts that only this job may use, from the snapshot.
    leaving:   hosts that will leave the cluster, with their free GPUs: used last by jobs that outlast them.
    held:      hosts that this pass keeps for a queued job, with their present and future free GPUs.
    started:   hosts on which a job starts in this pass.
    """

    def __init__(self, hosts: Iterable[Host], now: datetime) -> None:
        ordered = sorted(hosts, key=lambda host: (not host.passed_check, host.host_id), reverse=True)
        self.at = now
        self.hosts: Mapping[str, Host] = {host.host_id: host for host in ordered}
        most = max((host.gpus for host in ordered), default=0)
        self.open, self.backfill_hosts = OpenHosts(self.hosts, most), OpenHosts(self.hosts, most)
        self.reserved: dict[str, dict[str, int]] = {}
        self.leaving: dict[str, int] = {}
        self.held: set[str] = set()
        self.started: set[str] = set()
        sizes = [0] * (most + 1)
        self._offsets: dict[str, set[int]] = {}
        for host in ordered:
            if host.counts:
                sizes[host.gpus] += 1
            free = min(host.free, host.gpus)
            owner = self.owner(host)
            if owner:
                self.reserved.setdefault(owner, {})[host.host_id] = free if host.usable else 0
            elif not host.usable or free < 1:
                continue
            elif host.leaves_at is not None:
                self.leaving[host.host_id] = free
            else:
                self.open.add(host.host_id, free)
        self._at_least = [sum(sizes[gpus:]) for gpus in range(most + 1)]

    def owner(self, host: Host) -> str:
        """Return the only job that may use the host now; "" if any job may."""
        over = host.reserved_until is not None and host.reserved_until <= self.at
        return "" if over else host.reserved_for

    def could_fit(self, job: WaitingJob) -> bool:
        """Return whether the whole cluster, empty and healthy, has enough GPUs for the job."""
        return self.large_enough(job) >= job.nodes

    def large_enough(self, job: WaitingJob) -> int:
        """Return how many hosts have enough GPUs for a rank of the job, used or free."""
        return self._at_least[job.gpus] if job.gpus < len(self._at_least) else 0

    def free_for(self, host_id: str, job: WaitingJob) -> int:
        """Return the GPUs of a host that the job may use now."""
        own = self.reserved.get(job.job_id, {}).get(host_id, 0)
        return own or self.open.free.get(host_id, 0) or self.leaving.get(host_id, 0)

    def vacated_hosts(self, job: WaitingJob, held: Callable[[str], int]) -> list[str]:
        """Return hosts that were vacated for the job, but are not shown as free by ECS yet.

        Args:
            held: returns how many GPUs of a host are still in use.
        """
        own = self.reserved.get(job.job_id, {})
        return [
            host_id
            for host_id, free in own.items()
            if (host := self.hosts[host_id]).usable
            and host.reserved_until is not None
            and free < job.gpus <= host.gpus - held(host_id)
        ]

    def fitting(self, job: WaitingJob, *, may_backfill: bool = False) -> int:
        """Return how many hosts the job may use now.

        Args:
            may_backfill: whether the job may use hosts that are promised to the head of the queue.
        """
        own = self.reserved.get(job.job_id, {})
        promised = self.backfill_hosts.fits(job.gpus) if may_backfill else 0
        return (
            promised
            + self.open.fits(job.gpus)
            + sum(free >= job.gpus for hosts in (own, self.leaving) for free in hosts.values())
        )

    def fitting_among(self, host_ids: Iterable[str], job: WaitingJob, *, may_backfill: bool = False) -> list[Host]:
        """Return those of the hosts that the job may use now."""
        promised = self.backfill_hosts.free if may_backfill else {}
        known = (self.hosts[host_id] for host_id in host_ids if host_id in self.hosts)
        return [
            host
            for host in known
            if self.free_for(host.host_id, job) >= job.gpus or promised.get(host.host_id, 0) >= job.gpus
        ]

    def choose(self, job: WaitingJob, *, may_backfill: bool = False) -> list[str] | None:
        """Return hosts for the ranks of a job that could fit, in rank order; None if it does not fit now.

        Args:
            may_backfill: whether the job may use hosts that are promised to the head of the queue.
        """
        if job.recovering or job.suspects or self.leaving or job.job_id in self.reserved:
            return self._choose_with_care(job, (self.backfill_hosts, self.open) if may_backfill else (self.open,))
        fitting = self.open.counts[job.gpus]
        if may_backfill:
            fitting += self.backfill_hosts.counts[job.gpus]
        if fitting < job.nodes:
            return None
        return _pick((self.backfill_hosts, self.open) if may_backfill else (self.open,), job.nodes, job.gpus)

    def assign(self, job: WaitingJob, chosen: Sequence[str]) -> Assignment:
        """Take GPUs of the chosen hosts for the job."""
        own = self.reserved.get(job.job_id, {})
        for host_id in chosen:
            if host_id in own:
                own[host_id] -= job.gpus
            elif host_id in self.leaving:
                self.leaving[host_id] -= job.gpus
            else:
                (self.open if host_id in self.open.free else self.backfill_hosts).take(host_id, job.gpus)
        self.started.update(chosen)
        epochs = tuple(self.hosts[host_id].epoch for host_id in chosen)
        return Assignment(job.job_id, job.version, job.attempt, tuple(chosen), epochs, self._port_offset(chosen))

    def hold_for(self, job: WaitingJob) -> None:
        """Keep the free hosts for a waiting recovering gang: its own hosts, or any that fit if it accepts others."""
        wanted = job.last if job.own_only else self.open.fitting(job.gpus)
        for host_id in wanted:
            if self.open.free.get(host_id, 0) >= job.gpus:
                self.close_host(host_id)

    def close_host(self, host_id: str) -> None:
        """Close a host to all jobs for the rest of the pass."""
        self.open.discard(host_id)
        self.backfill_hosts.discard(host_id)
        self.leaving.pop(host_id, None)
        self.held.add(host_id)

    def _port_offset(self, chosen: Sequence[str]) -> int:
        """Return the lowest port offset that is unused on every host of the gang, and record it as used."""
        sets = [self._offsets.get(host_id) or set(self.hosts[host_id].port_offsets) for host_id in chosen]
        used = set().union(*sets)
        offset = next(n for n in range(len(used) + 1) if n not in used)
        for host_id, offsets in zip(chosen, sets, strict=True):
            self._offsets[host_id] = {*offsets, offset}
        return offset

    def _choose_with_care(self, job: WaitingJob, pools: Sequence[OpenHosts]) -> list[str] | None:
        """Choose hosts for a job with surviving, suspected or reserved hosts, or where hosts are leaving."""
        own = {host_id: free for host_id, free in self.reserved.get(job.job_id, {}).items() if free >= job.gpus}
        leaving = {host_id for host_id, free in self.leaving.items() if free >= job.gpus}
        free = {*own, *leaving}.union(*({i for i in job.last if pool.free.get(i, 0) >= job.gpus} for pool in pools))
        last = _without_repeats(job.last)
        if job.recovering and job.own_only:
            back = [host_id for host_id in last if host_id in free]
            return back if len(back) == job.nodes and not job.repairing else None
        keep = (
            [host_id if host_id in free and host_id not in job.suspects else "" for host_id in last]
            if job.recovering
            else []
        )
        if len(keep) > job.nodes:  # the gang has become narrower: the hosts that it keeps come first
            keep = sorted(keep, key=lambda host_id: not host_id)
        ranked = (keep + [""] * job.nodes)[: job.nodes]
        kept = {host_id for host_id in ranked if host_id}
        rest = self._other_hosts(job, pools, kept, own, leaving)
        filled = [host_id or (rest.pop(0) if rest else "") for host_id in ranked]
        return _avoid_suspected_ranks(filled, job.suspects) if all(filled) else None

    def _other_hosts(
        self, job: WaitingJob, pools: Sequence[OpenHosts], kept: set[str], own: Mapping[str, int], leaving: set[str]
    ) -> list[str]:
        """Return hosts for the ranks that keep none, best first.

        The order: reserved hosts and leaving hosts that outlast the job, open hosts, other leaving hosts, and suspects
        in the order of the job.
        """
        in_time = {host_id for host_id in leaving if self._ends_before_leaving(job, self.hosts[host_id])}
        first = [*self._in_order(own), *self._in_order(in_time)]
        chosen = [host_id for host_id in first if host_id not in kept and host_id not in job.suspects]
        missing = job.nodes - len(kept) - len(chosen)
        aside = [(pool, host_id, pool.discard(host_id)) for pool in pools for host_id in sorted({*kept, *job.suspects})]
        chosen += _pick(pools, missing, job.gpus, kept) or self._any_that_fit(pools, missing, job.gpus)
        for pool, host_id, free in aside:
            if free:
                pool.add(host_id, free)
        chosen += self._in_order(
            host_id for host_id in leaving - in_time if host_id not in kept and host_id not in job.suspects
        )
        suspects = (host_id for host_id in job.suspects if host_id not in chosen and host_id not in kept)
        return chosen + [
            host_id
            for host_id in suspects
            if own.get(host_id) or host_id in leaving or any(pool.free.get(host_id, 0) >= job.gpus for pool in pools)
        ]

    def _in_order(self, hosts: Iterable[str]) -> list[str]:
        """Return the hosts by lemon score, the lowest first, and those that have passed an idle check lately first."""
        known = self.hosts
        return sorted(hosts, key=lambda name: (known[name].lemon, not known[name].passed_check, name))

    def _any_that_fit(self, pools: Sequence[OpenHosts], nodes: int, gpus: int) -> list[str]:
        """Return every host that fits, if there are too few for all nodes."""
        return [host_id for pool in pools for host_id in pool.pick(nodes, gpus)]

    def _ends_before_leaving(self, job: WaitingJob, host: Host) -> bool:
        """Return whether the job is expected to end before the host leaves the cluster."""
        if job.runs_for_s is None or host.leaves_at is None:
            return False
        return self.at + timedelta(seconds=job.runs_for_s) <= host.leaves_at


def _without_repeats(hosts: Sequence[str]) -> list[str]:
    """Return the hosts with "" in place of each repetition.

    A user may have started two ranks on one instance; the scheduler places each rank on an instance of its own.
    """
    first = {host_id: rank for rank, host_id in reversed(list(enumerate(hosts)))}
    return [host_id if first[host_id] == rank else "" for rank, host_id in enumerate(hosts)]


def _pick(pools: Sequence[OpenHosts], nodes: int, gpus: int, near: Iterable[str] = ()) -> list[str] | None:
    """Return `nodes` hosts of the first pool that has enough, else of all pools together; None if there are too few."""
    close = tuple(near)
    for pool in pools:
        if pool.fits(gpus) >= nodes:
            return pool.pick(nodes, gpus, close)
    if len(pools) == 1 or sum(pool.fits(gpus) for pool in pools) < nodes:
        return None
    chosen: list[str] = []
    for pool in pools:
        chosen += pool.pick(nodes - len(chosen), gpus, close)
    return chosen


def _avoid_suspected_ranks(chosen: list[str], suspects: Mapping[str, int]) -> list[str]:
    """Reorder the hosts so that no suspect gets the rank under which it was suspected.

    The next failure then shows whether the host or the rank is the cause.
    """
    ranked = list(chosen)
    for rank, host_id in enumerate(chosen):
        if suspects.get(ranked[rank]) == rank:
            others = (
                other for other in range(rank + 1, rank + len(chosen)) if suspects.get(host_id) != other % len(chosen)
            )
            other = next((o % len(chosen) for o in others if suspects.get(ranked[o % len(chosen)]) != rank), rank)
            ranked[rank], ranked[other] = ranked[other], ranked[rank]
    return ranked
