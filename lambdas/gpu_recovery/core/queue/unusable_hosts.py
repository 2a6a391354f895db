"""Phase 7, unusable hosts: how many hosts of a group get no job now, and why, as words of a wait reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from gpu_recovery.core.fleet import HoldingLimit
from gpu_recovery.core.queue.snapshot import Host, OutOfUse

_WORDS: Mapping[OutOfUse, tuple[str, str]] = {
    OutOfUse.HELD: ("waits for its repair", "wait for their repair"),
    OutOfUse.QUARANTINED: ("is quarantined", "are quarantined"),
    OutOfUse.REPAIR: ("is checked or repaired", "are checked or repaired"),
    OutOfUse.DRAINING: ("is DRAINING in ECS", "are DRAINING in ECS"),
    OutOfUse.ORPHANED: ("is suspected to run ranks unknown to ECS", "are suspected to run ranks unknown to ECS"),
    OutOfUse.IMPAIRED: ("is impaired", "are impaired"),
    OutOfUse.LOST: ("is LOST", "are LOST"),
    OutOfUse.LEAVING: ("is about to leave", "are about to leave"),
    OutOfUse.DISCONNECTED: ("is not connected to ECS", "are not connected to ECS"),
}
"""Words for one host and for several, by the reason."""


class UnusableHosts:
    """The hosts of one group that get no job, counted by reason and number of GPUs."""

    def __init__(self, hosts: Iterable[Host], held_by: HoldingLimit | None) -> None:
        self._held_by = held_by
        self._hosts = {host.host_id: host for host in hosts if host.out_of_use is not None}
        self._counts = Counter((host.out_of_use, host.gpus) for host in self._hosts.values())

    def among(self, host_ids: Iterable[str]) -> UnusableHosts:
        """Return those of the given hosts that get no job."""
        return UnusableHosts((self._hosts[host_id] for host_id in host_ids if host_id in self._hosts), self._held_by)

    def held(self, gpus: int) -> int:
        """Return how many hosts with at least `gpus` GPUs wait for a repair that is blocked."""
        return self._of(gpus)[OutOfUse.HELD]

    def sentence(self, gpus: int, kinds: Iterable[OutOfUse] = OutOfUse) -> str:
        """Return the hosts with at least `gpus` GPUs by reason: `5 are held by ..., 1 is impaired`; "" for none."""
        counts = self._of(gpus)
        return ", ".join(f"{counts[kind]} {self._words(kind, counts[kind])}" for kind in kinds if counts[kind])

    def _words(self, kind: OutOfUse, count: int) -> str:
        if kind is OutOfUse.HELD and self._held_by is not None:
            return f"{'is' if count == 1 else 'are'} held by {self._held_by}"
        return _WORDS[kind][count > 1]

    def _of(self, gpus: int) -> Counter[OutOfUse]:
        counts: Counter[OutOfUse] = Counter()
        for (kind, size), count in self._counts.items():
            if kind is not None and size >= gpus:
                counts[kind] += count
        return counts
