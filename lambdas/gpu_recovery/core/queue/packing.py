"""Phase 3, packing: hosts indexed by their number of free GPUs.

The index answers what fits without a loop over the hosts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from math import fsum

from gpu_recovery.core.queue.snapshot import Host


class HostLevels:
    """Hosts in levels by their number of free GPUs; hosts in use are separate from empty hosts.

    `fits[g]` is the number of hosts with at least g free GPUs. Lemons are on levels of their own, by their score.
    """

    __slots__ = ("_lemon_fits", "_lemons", "_partly", "_whole", "fits")

    def __init__(self, most: int) -> None:
        self.fits = [0] * (most + 1)
        self._lemon_fits = [0] * (most + 1)
        self._partly: list[dict[str, None]] = [{} for _ in range(most + 1)]
        self._whole: list[dict[str, None]] = [{} for _ in range(most + 1)]
        self._lemons: dict[tuple[bool, int], dict[float, dict[str, None]]] = {}

    def put(self, host_id: str, free: int, whole: bool, lemon: float) -> None:
        """Add a host."""
        self._level(free, whole, lemon)[host_id] = None
        self._count(range(1, free + 1), lemon, 1)

    def remove(self, host_id: str, free: int, whole: bool, lemon: float) -> None:
        """Remove a host; the arguments are those of its `put`."""
        del self._level(free, whole, lemon)[host_id]
        self._count(range(1, free + 1), lemon, -1)

    def lower(self, host_id: str, free: int, whole: bool, lemon: float, left: int) -> None:
        """Lower the free GPUs of a host from `free` to `left`."""
        del self._level(free, whole, lemon)[host_id]
        self._count(range(left + 1, free + 1), lemon, -1)
        if left:
            self._level(left, False, lemon)[host_id] = None

    def without_lemons(self, gpus: int) -> int:
        """Return how many hosts without a lemon score have at least `gpus` free GPUs."""
        return self.fits[gpus] - self._lemon_fits[gpus]

    def best(self, gpus: int) -> Iterator[str]:
        """Yield hosts for a rank with `gpus` GPUs, best fit first: exact fits, then hosts in use, then empty hosts."""
        if self._lemon_fits[gpus]:
            yield from self._best_with_lemons(gpus)
            return
        yield from reversed(self._partly[gpus])
        yield from reversed(self._whole[gpus])
        for levels in (self._partly, self._whole):
            for level in islice(levels, gpus + 1, None):
                yield from reversed(level)

    def _best_with_lemons(self, gpus: int) -> Iterator[str]:
        """Yield the same order where there are lemons.

        Lemons follow the other hosts that fit exactly or are in use, the lowest score first. They precede the larger
        empty hosts: the job would break up such a host, which costs a gang more than a worse fit does.
        """
        more = range(gpus + 1, len(self._whole))
        exact_or_in_use = ((False, gpus), (True, gpus), *((False, free) for free in more))
        for levels in (exact_or_in_use, tuple((True, free) for free in more)):
            for whole, free in levels:
                yield from reversed((self._whole if whole else self._partly)[free])
            behind = [(lemon, level) for level in levels for lemon in self._lemons.get(level, {})]
            for lemon, level in sorted(behind, key=lambda pair: pair[0]):
                yield from reversed(self._lemons[level][lemon])

    def _count(self, sizes: Iterable[int], lemon: float, by: int) -> None:
        for counts in (self.fits, self._lemon_fits) if lemon else (self.fits,):
            for gpus in sizes:
                counts[gpus] += by

    def _level(self, free: int, whole: bool, lemon: float) -> dict[str, None]:
        if lemon:
            return self._lemons.setdefault((whole, free), {}).setdefault(lemon, {})
        return (self._whole if whole else self._partly)[free]


class OpenHosts:
    """The hosts of a group that are open to some jobs, with their free GPUs at this point of the pass.

    hosts: every host by its id. Racks and zones are used only if the hosts have any.
    """

    __slots__ = ("_levels", "_most", "_racks", "_zones", "counts", "free", "hosts")

    def __init__(self, hosts: Mapping[str, Host], most: int) -> None:
        self.hosts = hosts
        self.free: dict[str, int] = {}
        self._most = most
        self._levels = HostLevels(most)
        self.counts = self._levels.fits
        """`counts[g]`: the number of hosts with at least g free GPUs, for every g that a host can have."""
        self._racks: dict[tuple[str, str], HostLevels] = {}
        self._zones: dict[str, HostLevels] = {}

    def fits(self, gpus: int) -> int:
        """Return how many hosts have at least `gpus` free GPUs."""
        return self._levels.fits[gpus] if gpus <= self._most else 0

    def add(self, host_id: str, free: int) -> None:
        """Open a host, with its free GPUs, to the jobs of this pool."""
        host = self.hosts[host_id]
        self.free[host_id] = free
        for level in self._levels_of(host):
            level.put(host_id, free, free == host.gpus, host.lemon)

    def discard(self, host_id: str) -> int:
        """Close a host to these jobs; returns its free GPUs, 0 if it was not open."""
        free = self.free.pop(host_id, 0)
        if free:
            host = self.hosts[host_id]
            for level in self._levels_of(host):
                level.remove(host_id, free, free == host.gpus, host.lemon)
        return free

    def take(self, host_id: str, gpus: int) -> None:
        """Take `gpus` GPUs of a host."""
        free, host = self.free[host_id], self.hosts[host_id]
        left = free - gpus
        for level in self._levels_of(host):
            level.lower(host_id, free, free == host.gpus, host.lemon, left)
        if left:
            self.free[host_id] = left
        else:
            del self.free[host_id]

    def fitting(self, gpus: int) -> list[str]:
        """Return every host with at least `gpus` free GPUs."""
        return [host_id for host_id, free in self.free.items() if free >= gpus]

    def pick(self, nodes: int, gpus: int, near: Collection[str] = ()) -> list[str]:
        """Return at most `nodes` hosts with at least `gpus` free GPUs each.

        The hosts are of one rack if a rack has enough, else of one zone, else of few racks. Racks and zones of the
        hosts `near` come first, then those whose hosts for the job have the lowest lemon scores, then the best fit.
        """
        if gpus > self._most or nodes < 1:
            return []
        if not self._racks or (nodes == 1 and not near):
            return list(islice(self._levels.best(gpus), nodes))
        beside = {(self.hosts[host_id].zone, self.hosts[host_id].rack) for host_id in near}
        racks = [
            (key not in beside, self._lemons_in(level, nodes, gpus), level.fits[gpus], key)
            for key, level in self._racks.items()
            if level.fits[gpus] >= nodes and key[1]
        ]
        if racks:
            return list(islice(self._racks[min(racks)[3]].best(gpus), nodes))
        around = {zone for zone, _ in beside}
        zones = [
            (zone not in around, self._lemons_in(level, nodes, gpus), level.fits[gpus], zone)
            for zone, level in self._zones.items()
            if level.fits[gpus] >= nodes and zone
        ]
        within = {min(zones)[3]} if zones else set(self._zones)
        return self._of_few_racks(nodes, gpus, beside, within)

    def _of_few_racks(
        self, nodes: int, gpus: int, beside: Collection[tuple[str, str]], zones: Collection[str]
    ) -> list[str]:
        """Return hosts of the racks of `zones`, racks with most fitting hosts first, so that few racks take part.

        Of the hosts of these few racks, lemons are taken only if the others are too few.
        """
        ranked = sorted(
            (key not in beside, -level.fits[gpus], key) for key, level in self._racks.items() if key[0] in zones
        )
        few: list[HostLevels] = []
        room = nodes
        for _, _, key in ranked:
            if room <= 0:
                break
            few.append(self._racks[key])
            room -= self._racks[key].fits[gpus]
        lemons = self._lemons_to_take(few, nodes, gpus)
        chosen: list[str] = []
        for level in few:
            fitting = (host_id for host_id in level.best(gpus) if not self.hosts[host_id].lemon or host_id in lemons)
            chosen += islice(fitting, nodes - len(chosen))
        if len(chosen) < nodes:  # some hosts have neither rack nor zone
            taken = set(chosen)
            placeless = (host_id for host_id in self._levels.best(gpus) if host_id not in taken)
            chosen += islice(placeless, nodes - len(chosen))
        return chosen

    def _lemons_to_take(self, racks: Collection[HostLevels], nodes: int, gpus: int) -> Collection[str]:
        """Return the lemons of these racks that a gang of `nodes` needs besides the other hosts, lowest score first."""
        needed = nodes - sum(level.without_lemons(gpus) for level in racks)
        if needed <= 0:
            return ()
        lemons = (host_id for level in racks for host_id in level.best(gpus) if self.hosts[host_id].lemon)
        return set(sorted(lemons, key=lambda host_id: self.hosts[host_id].lemon)[:needed])

    def _lemons_in(self, level: HostLevels, nodes: int, gpus: int) -> float:
        """Return the sum of the lemon scores of the hosts that a gang of `nodes` would take here."""
        if level.without_lemons(gpus) == level.fits[gpus]:
            return 0.0
        return fsum(self.hosts[host_id].lemon for host_id in islice(level.best(gpus), nodes))

    def _levels_of(self, host: Host) -> tuple[HostLevels, ...]:
        """Return the levels that hold the host: those of all hosts, of its zone and of its rack.

        A host without rack and zone is only in the levels of all hosts.
        """
        if not host.rack and not host.zone:
            return (self._levels,)
        key = (host.zone, host.rack)
        rack = self._racks.get(key) or self._racks.setdefault(key, HostLevels(self._most))
        zone = self._zones.get(host.zone) or self._zones.setdefault(host.zone, HostLevels(self._most))
        return (self._levels, zone, rack)
