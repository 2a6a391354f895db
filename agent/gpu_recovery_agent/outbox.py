"""What the server does not know yet: the agent's spool. Bounded by what it is, not by how long the API is away.

Presence is never kept. Health gives way to newer health, an inventory to a newer one, an XID to the same on the same
GPU; the log of the kernel and the cursor in `state` bring back after a restart what was not told, and after a reboot,
which empties that log, `state` has the newest of it. Exits are files: they are removed when an answer has come, and by
nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from gpu_recovery_agent.log import AgentLog
from gpu_recovery_agent.report import EXITS_MAX, XIDS_MAX, ReportContent
from gpu_recovery_agent.sensors.gpu_health import IMPAIRED, GpuHealthStatus, digest
from gpu_recovery_agent.sensors.kernel_log import Xid
from gpu_recovery_agent.sensors.ranks import ExitFile, LiveRank, RankSensor
from gpu_recovery_agent.state import AgentState

OUTBOX_XIDS_MAX = 1_000


class Outbox:
    """Collects what the sensors see, gives what the next report tells, and forgets what was heard."""

    def __init__(
        self, boot_id: str, state: AgentState, running: RankSensor, journal: AgentLog, inventory_s: float
    ) -> None:
        self._boot_id, self._state, self._running, self._log = boot_id, state, running, journal
        self._inventory_s = inventory_s
        self._exits: list[ExitFile] = []
        self._xids: dict[tuple[int, str, str, bool | None], Xid] = {}
        self._sent_alone: set[tuple[int, int, int]] = set()
        self._urgent_sent: set[object] = set()
        self._inventory_sent: tuple[str, float] | None = None
        self._inventory_wanted = False

    def restore(self) -> None:
        """Takes what an agent before had seen under an earlier boot and could not tell; to be called once."""
        self._xids |= {one.key: one for one in self._state.unreported}

    def add(self, exits: Sequence[ExitFile], xids: Iterable[Xid], health: GpuHealthStatus) -> bool:
        """Takes what was seen. True when there is something to tell at once that was not there at the last look."""
        self._exits = list(exits)
        for one in xids:
            if one.at_s > self._state.reported_s:
                self._xids[one.key] = one
        while len(self._xids) > OUTBOX_XIDS_MAX:
            del self._xids[min(self._xids, key=lambda key: self._xids[key].at_s)]
        self._persist()
        now: set[object] = {one.signature for one in exits} | {(one.key, one.at_s) for one in self._xids.values()}
        now |= {health.status} if health.status == IMPAIRED else set()
        is_new = bool(now - self._urgent_sent)
        self._urgent_sent = now
        return is_new

    def next_report(
        self,
        live: Sequence[LiveRank],
        health: GpuHealthStatus,
        inventory: dict[str, Any] | None,
        uuids: dict[str, str],
        now: float,
    ) -> ReportContent:
        """What the next report tells. An exit of a report that was refused goes alone, with nothing beside it.

        `inventory` is None before the GPUs were ever read: an empty list would say that there are none.
        """
        apart = [one for one in self._exits if one.signature in self._sent_alone]
        if apart:
            return ReportContent(self._boot_id, exits=apart[:1])
        xids = self._in_order()[:XIDS_MAX]
        known = digest(inventory) if inventory else ""
        wanted = inventory is not None and (self._inventory_wanted or self._is_due(known, now))
        return ReportContent(
            self._boot_id, live, self._exits[:EXITS_MAX], xids, health, known, inventory if wanted else None, uuids
        )

    def acknowledge(self, facts: ReportContent, *, inventory_wanted: bool, now: float) -> bool:
        """Forgets what was told. True when more waits, for which there was no room."""
        for one in facts.exits:
            self._running.remove(one)
            self._sent_alone.discard(one.signature)
        self._forget_xids(facts)
        if facts.inventory is not None:
            self._inventory_sent = facts.digest, now
        if facts.health is not None:
            self._inventory_wanted = inventory_wanted
        told = {one.signature for one in facts.exits}
        self._exits = [one for one in self._exits if one.signature not in told]
        return bool(self._exits or self._xids)

    def reject(self, facts: ReportContent, now: float, field: str = "") -> bool:
        """After a report that the server cannot read. True when its exits are now to be told, each by itself.

        One that was alone already is put aside, where a person finds it: it is kept, and not tried for ever.
        """
        is_alone = facts.health is None
        if not field.startswith(("running", "exits")):  # else the faults had no part in it, and are told again
            self._forget_xids(facts)
        if is_alone:
            for one in facts.exits:
                self._log.write(f"{one.path} is refused by the API and put aside")
                self._running.put_aside(one)
                self._sent_alone.discard(one.signature)
            self._exits = [one for one in self._exits if one not in facts.exits]
        else:
            self._sent_alone |= {one.signature for one in facts.exits}
        if facts.inventory is not None:
            self._inventory_sent, self._inventory_wanted = (facts.digest, now), False
        return bool(self._sent_alone)

    def without_inventory(self, facts: ReportContent, now: float) -> ReportContent:
        """The same report without what makes it large. The inventory is not tried again before it changes."""
        self._inventory_sent, self._inventory_wanted = (facts.digest, now), False
        return replace(facts, inventory=None)

    def _is_due(self, known: str, now: float) -> bool:
        if self._inventory_sent is None:
            return True
        told, at = self._inventory_sent
        return told != known or now - at >= self._inventory_s

    def _forget_xids(self, facts: ReportContent) -> None:
        for one in facts.xids:
            if self._xids.get(one.key) == one:
                del self._xids[one.key]
        self._state.unreported = self._in_order()  # the state is saved when the answer has been dealt with
        told = [one.at_s for one in facts.xids if not one.boot_id]
        if told:
            # The cursor may only pass what nobody waits for any more.
            waiting = min((one.at_s for one in self._xids.values() if not one.boot_id), default=max(told) + 1)
            if max(told) < waiting:
                self._state.reported_s = max(self._state.reported_s, *told)

    def _persist(self) -> None:
        """What waits to be told is on the disk before it is told: the machine may be reset before the API is back."""
        untold = self._in_order()
        if untold != self._state.unreported:
            self._state.unreported = untold
            self._state.save()

    def _in_order(self) -> list[Xid]:
        """What waits, the oldest first: that of earlier boots first, as it was kept."""
        return sorted(self._xids.values(), key=lambda one: -1.0 if one.boot_id else one.at_s)
