"""The room of one group: which of its hosts are open to whom, and the choice of hosts for a job."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from gpu_recovery.core.queue.packing import OpenHosts
from gpu_recovery.core.queue.snapshot import Assignment, Host, WaitingJob


class HostPool:
    """The hosts of one group during a pass.

    open:      what every job may have.
    kept:      what is free now of what the head of the line is promised: for jobs that end before it starts.
    reserved:  job to the hosts that only it may have, from the snapshot.
    leaving:   hosts that will leave the cluster, with what is free on them: taken last by jobs that outlast them.
    held:      hosts that are kept for a job in line by this pass, with what is free on them and what will be.
    started:   hosts on which somebody starts in this pass.
    """

    def __init__(self, hosts: Iterable[Host], now: datetime) -> None:
        ordered = sorted(hosts, key=lambda host: host.host_id, reverse=True)
        self.at = now
        self.hosts: Mapping[str, Host] = {host.host_id: host for host in ordered}
        most = max((host.gpus for host in ordered), default=0)
        self.open, self.kept = OpenHosts(self.hosts, most), OpenHosts(self.hosts, most)
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
        """The only job that may have the host at this time; "" if any may."""
        over = host.reserved_until is not None and host.reserved_until <= self.at
        return "" if over else host.reserved_for

    def could_fit(self, job: WaitingJob) -> bool:
        """Whether the whole cluster, empty and healthy, has enough for the job."""
        return job.gpus < len(self._at_least) and self._at_least[job.gpus] >= job.nodes

    def free_for(self, host_id: str, job: WaitingJob) -> int:
        """The GPUs of a host that the job may have now."""
        own = self.reserved.get(job.job_id, {}).get(host_id, 0)
        return own or self.open.free.get(host_id, 0) or self.leaving.get(host_id, 0)

    def vacated(self, job: WaitingJob, held: Callable[[str], int]) -> list[str]:
        """Hosts that were vacated for the job, and on which ECS has not shown the GPUs to be free yet: they come.

        held: how many GPUs jobs still hold on a host.
        """
        own = self.reserved.get(job.job_id, {})
        return [
            host_id
            for host_id, free in own.items()
            if (host := self.hosts[host_id]).usable
            and host.reserved_until is not None
            and free < job.gpus <= host.gpus - held(host_id)
        ]

    def fitting(self, job: WaitingJob) -> int:
        """How many hosts the job may have now."""
        own = self.reserved.get(job.job_id, {})
        return self.open.fits(job.gpus) + sum(
            free >= job.gpus for some in (own, self.leaving) for free in some.values()
        )

    def choose(self, job: WaitingJob, *, may_use_kept: bool = False) -> list[str] | None:
        """The hosts for the ranks of a job that could fit, in rank order, or None if it does not fit now."""
        if job.recovering or job.suspects or self.leaving or job.job_id in self.reserved:
            return self._choose_with_care(job, (self.kept, self.open) if may_use_kept else (self.open,))
        fitting = self.open.counts[job.gpus]
        if may_use_kept:
            fitting += self.kept.counts[job.gpus]
        if fitting < job.nodes:
            return None
        return _pick((self.kept, self.open) if may_use_kept else (self.open,), job.nodes, job.gpus)

    def assign(self, job: WaitingJob, chosen: Sequence[str]) -> Assignment:
        """Take the chosen hosts' GPUs for the job."""
        own = self.reserved.get(job.job_id, {})
        for host_id in chosen:
            if host_id in own:
                own[host_id] -= job.gpus
            elif host_id in self.leaving:
                self.leaving[host_id] -= job.gpus
            else:
                (self.open if host_id in self.open.free else self.kept).take(host_id, job.gpus)
        self.started.update(chosen)
        epochs = tuple(self.hosts[host_id].epoch for host_id in chosen)
        return Assignment(job.job_id, job.version, job.attempt, tuple(chosen), epochs, self._port_offset(chosen))

    def hold_for(self, job: WaitingJob) -> None:
        """Keep for a recovering gang that waits the free hosts it could use: its own, or any if it takes any."""
        wanted = job.last if job.own_only else self.open.fitting(job.gpus)
        for host_id in wanted:
            if self.open.free.get(host_id, 0) >= job.gpus:
                self.close_host(host_id)

    def close_host(self, host_id: str) -> None:
        """Close a host to everybody for the rest of the pass."""
        self.open.discard(host_id)
        self.leaving.pop(host_id, None)
        self.held.add(host_id)

    def _port_offset(self, chosen: Sequence[str]) -> int:
        """The lowest that is unused on every host of the gang."""
        sets = [self._offsets.get(host_id) or set(self.hosts[host_id].port_offsets) for host_id in chosen]
        used = set().union(*sets)
        offset = next(n for n in range(len(used) + 1) if n not in used)
        for host_id, offsets in zip(chosen, sets, strict=True):
            self._offsets[host_id] = {*offsets, offset}
        return offset

    def _choose_with_care(self, job: WaitingJob, pools: Sequence[OpenHosts]) -> list[str] | None:
        """For a job with survivors, suspects or hosts of its own, or among hosts that leave."""
        own = {one: free for one, free in self.reserved.get(job.job_id, {}).items() if free >= job.gpus}
        leaving = {one for one, free in self.leaving.items() if free >= job.gpus}
        free = {*own, *leaving}.union(*({i for i in job.last if p.free.get(i, 0) >= job.gpus} for p in pools))
        last = _each_once(job.last)
        if job.recovering and job.own_only:
            back = [one for one in last if one in free]
            return back if len(back) == job.nodes and not job.repairing else None
        keep = [one if one in free and one not in job.suspects else "" for one in last] if job.recovering else []
        ranked = (keep + [""] * job.nodes)[: job.nodes]
        kept = {one for one in ranked if one}
        rest = self._other_hosts(job, pools, kept, own, leaving)
        filled = [one or (rest.pop(0) if rest else "") for one in ranked]
        return _under_other_ranks(filled, job.suspects) if all(filled) else None

    def _other_hosts(
        self, job: WaitingJob, pools: Sequence[OpenHosts], kept: set[str], own: Mapping[str, int], leaving: set[str]
    ) -> list[str]:
        """Hosts for the ranks that keep none: its own, that leave later, any, that leave before, at last suspects."""
        in_time = {one for one in leaving if self._ends_before_leaving(job, self.hosts[one])}
        first = [*self._in_order(own), *self._in_order(in_time)]
        chosen = [one for one in first if one not in kept and one not in job.suspects]
        missing = job.nodes - len(kept) - len(chosen)
        aside = [(pool, one, pool.discard(one)) for pool in pools for one in sorted({*kept, *job.suspects})]
        chosen += _pick(pools, missing, job.gpus, kept) or self._any_that_fit(pools, missing, job.gpus)
        for pool, one, free in aside:
            if free:
                pool.add(one, free)
        chosen += self._in_order(one for one in leaving - in_time if one not in kept and one not in job.suspects)
        suspects = {one for one in job.suspects if one not in chosen and one not in kept}
        return chosen + sorted(
            one
            for one in suspects
            if own.get(one) or one in leaving or any(pool.free.get(one, 0) >= job.gpus for pool in pools)
        )

    def _in_order(self, hosts: Iterable[str]) -> list[str]:
        return sorted(hosts, key=lambda one: (self.hosts[one].lemon, one))

    def _any_that_fit(self, pools: Sequence[OpenHosts], nodes: int, gpus: int) -> list[str]:
        """Every host that fits, where they are too few."""
        return [one for pool in pools for one in pool.pick(nodes, gpus)]

    def _ends_before_leaving(self, job: WaitingJob, host: Host) -> bool:
        if job.runs_for_s is None or host.leaves_at is None:
            return False
        return self.at + timedelta(seconds=job.runs_for_s) <= host.leaves_at


def _each_once(hosts: Sequence[str]) -> list[str]:
    """Each host where it is named first, "" where again: people may have started two ranks on one; we never do."""
    first = {one: rank for rank, one in reversed(list(enumerate(hosts)))}
    return [one if first[one] == rank else "" for rank, one in enumerate(hosts)]


def _pick(pools: Sequence[OpenHosts], nodes: int, gpus: int, near: Iterable[str] = ()) -> list[str] | None:
    """`nodes` hosts of the first pool that has them, else of all together; None if they are too few."""
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


def _under_other_ranks(chosen: list[str], suspects: Mapping[str, int]) -> list[str]:
    """`chosen`, no suspect among them with the rank it was suspected for: who ends first next tells which it is."""
    ranked = list(chosen)
    for rank, one in enumerate(chosen):
        if suspects.get(ranked[rank]) == rank:
            others = (
                other for other in range(rank + 1, rank + len(chosen)) if suspects.get(one) != other % len(chosen)
            )
            other = next((o % len(chosen) for o in others if suspects.get(ranked[o % len(chosen)]) != rank), rank)
            ranked[rank], ranked[other] = ranked[other], ranked[rank]
    return ranked
