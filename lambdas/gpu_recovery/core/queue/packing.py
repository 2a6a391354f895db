"""Phase 3: packing. Free GPUs by how many a host has of them, so that asking what fits costs nothing per host."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import islice

from gpu_recovery.core.queue.snapshot import Host


class HostLevels:
    """Hosts sorted into levels by their free GPUs; those in use apart from those that nobody uses.

    `fits[g]` is how many hosts have at least g free. Lemons stand apart on each level, behind the others.
    """

    __slots__ = ("_lemons", "_partly", "_whole", "fits")

    def __init__(self, most: int) -> None:
        self.fits = [0] * (most + 1)
        self._partly: list[dict[str, None]] = [{} for _ in range(most + 1)]
        self._whole: list[dict[str, None]] = [{} for _ in range(most + 1)]
        self._lemons: dict[tuple[bool, int], dict[float, dict[str, None]]] = {}

    def put(self, host_id: str, free: int, whole: bool, lemon: float) -> None:
        """A host that was not there."""
        self._level(free, whole, lemon)[host_id] = None
        for gpus in range(1, free + 1):
            self.fits[gpus] += 1

    def remove(self, host_id: str, free: int, whole: bool, lemon: float) -> None:
        """A host that was there, with what it was put there with."""
        del self._level(free, whole, lemon)[host_id]
        for gpus in range(1, free + 1):
            self.fits[gpus] -= 1

    def lower(self, host_id: str, free: int, whole: bool, lemon: float, left: int) -> None:
        """The host now has `left` free GPUs, fewer than before."""
        del self._level(free, whole, lemon)[host_id]
        for gpus in range(left + 1, free + 1):
            self.fits[gpus] -= 1
        if left:
            self._level(left, False, lemon)[host_id] = None

    def best(self, gpus: int) -> Iterator[str]:
        """Hosts for a rank of so many GPUs, best fit first: what leaves nothing over, then hosts in use, then whole."""
        if self._lemons:
            yield from self._best_but_lemons(gpus)
            return
        yield from reversed(self._partly[gpus])
        yield from reversed(self._whole[gpus])
        for levels in (self._partly, self._whole):
            for level in islice(levels, gpus + 1, None):
                yield from reversed(level)

    def _best_but_lemons(self, gpus: int) -> Iterator[str]:
        """The same where there are lemons: on each level those with the lowest score first, after the others."""
        more = range(gpus + 1, len(self._whole))
        for whole, free in ((False, gpus), (True, gpus), *((whole, free) for whole in (False, True) for free in more)):
            yield from reversed((self._whole if whole else self._partly)[free])
            behind = self._lemons.get((whole, free), {})
            for lemon in sorted(behind):
                yield from reversed(behind[lemon])

    def _level(self, free: int, whole: bool, lemon: float) -> dict[str, None]:
        if lemon:
            return self._lemons.setdefault((whole, free), {}).setdefault(lemon, {})
        return (self._whole if whole else self._partly)[free]


class OpenHosts:
    """The hosts of a group that are open to some jobs, and what is free on them at this point of the pass.

    hosts: every host by its id. Racks and zones are looked at only if the hosts have any.
    """

    __slots__ = ("_levels", "_most", "_racks", "_zones", "counts", "free", "hosts")

    def __init__(self, hosts: Mapping[str, Host], most: int) -> None:
        self.hosts = hosts
        self.free: dict[str, int] = {}
        self._most = most
        self._levels = HostLevels(most)
        self.counts = self._levels.fits
        """`counts[g]`: how many hosts have g GPUs free, for every g that a host can have."""
        self._racks: dict[tuple[str, str], HostLevels] = {}
        self._zones: dict[str, HostLevels] = {}

    def fits(self, gpus: int) -> int:
        """How many hosts have so many GPUs free."""
        return self._levels.fits[gpus] if gpus <= self._most else 0

    def add(self, host_id: str, free: int) -> None:
        """Open a host with free GPUs to the jobs of this pool."""
        host = self.hosts[host_id]
        self.free[host_id] = free
        for level in self._levels_of(host):
            level.put(host_id, free, free == host.gpus, host.lemon)

    def discard(self, host_id: str) -> int:
        """Close a host to them; how many GPUs are free on it, 0 if it was not open."""
        free = self.free.pop(host_id, 0)
        if free:
            host = self.hosts[host_id]
            for level in self._levels_of(host):
                level.remove(host_id, free, free == host.gpus, host.lemon)
        return free

    def take(self, host_id: str, gpus: int) -> None:
        """Give away so many GPUs of a host."""
        free, host = self.free[host_id], self.hosts[host_id]
        left = free - gpus
        for level in self._levels_of(host):
            level.lower(host_id, free, free == host.gpus, host.lemon, left)
        if left:
            self.free[host_id] = left
        else:
            del self.free[host_id]

    def fitting(self, gpus: int) -> list[str]:
        """Every host with so many GPUs free."""
        return [host_id for host_id, free in self.free.items() if free >= gpus]

    def pick(self, nodes: int, gpus: int, near: Collection[str] = ()) -> list[str]:
        """At most `nodes` hosts with so many GPUs free: of one rack if one has as many, else of one zone, else of few
        racks. The racks and zones of the hosts `near` come first."""
        if gpus > self._most or nodes < 1:
            return []
        if not self._racks or (nodes == 1 and not near):
            return list(islice(self._levels.best(gpus), nodes))
        beside = {(self.hosts[one].zone, self.hosts[one].rack) for one in near}
        racks = [
            (key not in beside, level.fits[gpus], key)
            for key, level in self._racks.items()
            if level.fits[gpus] >= nodes and key[1]
        ]
        if racks:
            return list(islice(self._racks[min(racks)[2]].best(gpus), nodes))
        around = {zone for zone, _ in beside}
        zones = [
            (zone not in around, level.fits[gpus], zone)
            for zone, level in self._zones.items()
            if level.fits[gpus] >= nodes and zone
        ]
        within = {min(zones)[2]} if zones else set(self._zones)
        return self._of_few_racks(nodes, gpus, beside, within)

    def _of_few_racks(
        self, nodes: int, gpus: int, beside: Collection[tuple[str, str]], zones: Collection[str]
    ) -> list[str]:
        """The fullest racks of `zones` first, so that the fewest take part."""
        ranked = sorted(
            (key not in beside, -level.fits[gpus], key) for key, level in self._racks.items() if key[0] in zones
        )
        chosen: list[str] = []
        for _, _, key in ranked:
            chosen += islice(self._racks[key].best(gpus), nodes - len(chosen))
        if len(chosen) < nodes:  # some hosts have neither rack nor zone
            taken = set(chosen)
            placeless = (one for one in self._levels.best(gpus) if one not in taken)
            chosen += islice(placeless, nodes - len(chosen))
        return chosen

    def _levels_of(self, host: Host) -> tuple[HostLevels, ...]:
        """Where a host stands: among all, in its zone and in its rack. One without either stands among all alone."""
        if not host.rack and not host.zone:
            return (self._levels,)
        key = (host.zone, host.rack)
        rack = self._racks.get(key) or self._racks.setdefault(key, HostLevels(self._most))
        zone = self._zones.get(host.zone) or self._zones.setdefault(host.zone, HostLevels(self._most))
        return (self._levels, zone, rack)
