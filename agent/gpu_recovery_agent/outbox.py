"""The outbox: what the server has not acknowledged yet.

Its size is bounded, however long the API is unreachable. Liveness is never stored. Only the newest health status and
the newest inventory stay, and one entry per XID and GPU. After a restart of the agent the kernel log and the cursor in
`state` restore the XIDs that were not reported. A reboot empties that log, so `state` also stores the newest of them.
Exits are files: the agent removes them only when the server has acknowledged them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from gpu_recovery_agent.log import AgentLog
from gpu_recovery_agent.report import EXITS_MAX, XIDS_MAX, ReportContent
from gpu_recovery_agent.sensors.gpu_health import IMPAIRED, GpuHealthStatus, digest
from gpu_recovery_agent.sensors.kernel_log import Xid
from gpu_recovery_agent.sensors.rank_folder import FileSignature
from gpu_recovery_agent.sensors.ranks import ExitFile, LiveRank, RankSensor
from gpu_recovery_agent.state import REPORTED_FROM_DCGM_MAX, AgentState

OUTBOX_XIDS_MAX = 1_000
"""Largest number of XID entries in the outbox; the oldest are dropped first."""


class Outbox:
    """Collects what the sensors see, builds the next report and removes what the server acknowledged."""

    def __init__(self, boot_id: str, state: AgentState, running: RankSensor, log: AgentLog, inventory_s: float) -> None:
        self._boot_id, self._state, self._running, self._log = boot_id, state, running, log
        self._inventory_s = inventory_s
        self._exits: list[ExitFile] = []
        self._xids: dict[tuple[int, str, str, bool | None, str], Xid] = {}
        self._sent_alone: set[FileSignature] = set()
        self._urgent_sent: set[object] = set()
        self._inventory_sent: tuple[str, float] | None = None
        self._inventory_wanted = False
        self._uuids: dict[str, str] = {}

    def restore(self) -> None:
        """Load the XIDs of earlier boots that an earlier agent could not report. Call once."""
        self._xids |= {xid.key: xid for xid in self._state.unreported}

    def add(self, exits: Sequence[ExitFile], xids: Iterable[Xid], health: GpuHealthStatus) -> bool:
        """Store what the sensors saw. Return True if there is something urgent that was not there at the last poll."""
        self._exits = list(exits)
        for xid in xids:
            if xid.source or xid.at_s > self._state.reported_s:
                self._xids[xid.key] = xid
        while len(self._xids) > OUTBOX_XIDS_MAX:
            del self._xids[min(self._xids, key=lambda key: self._xids[key].at_s)]
        self._persist()
        now: set[object] = {ended.signature for ended in exits} | {(xid.key, xid.at_s) for xid in self._xids.values()}
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
        """Return the content of the next report. After a refused report, its exits are sent one by one.

        Args:
            live: the ranks that run now.
            health: the health of the GPUs.
            inventory: None before the first reading of the GPUs; an empty list would say that there are no GPUs.
            uuids: the UUIDs of the GPUs by PCI address, from the last reading. UUIDs of earlier readings are kept,
                because a GPU that is lost no longer answers with its UUID.
            now: monotonic time in seconds.
        """
        self._uuids |= uuids
        alone = [ended for ended in self._exits if ended.signature in self._sent_alone]
        if alone:
            return ReportContent(self._boot_id, exits=alone[:1])
        xids = self._in_order()[:XIDS_MAX]
        known = digest(inventory) if inventory else ""
        wanted = inventory is not None and (self._inventory_wanted or self._is_due(known, now))
        return ReportContent(
            self._boot_id,
            live,
            self._exits[:EXITS_MAX],
            xids,
            health,
            known,
            inventory if wanted else None,
            dict(self._uuids),
        )

    def acknowledge(self, report: ReportContent, *, inventory_wanted: bool, now: float) -> bool:
        """Remove what the server received. Return True if more waits that did not fit into the report."""
        for ended in report.exits:
            self._running.remove(ended)
            self._sent_alone.discard(ended.signature)
        self._forget_xids(report)
        if report.inventory is not None:
            self._inventory_sent = report.digest, now
        if report.health is not None:
            self._inventory_wanted = inventory_wanted
        sent = {ended.signature for ended in report.exits}
        self._exits = [ended for ended in self._exits if ended.signature not in sent]
        return bool(self._exits or self._xids)

    def reject(self, report: ReportContent, now: float, field: str = "") -> bool:
        """Handle a report that the server cannot read. Return True if its exits must now be sent one by one.

        An exit that was already sent alone is renamed, so that an operator finds it and the agent does not retry it.
        """
        is_alone = report.health is None
        # A wrong field of `running` or `exits` is no fault of the XIDs, so they stay and are sent again.
        if not field.startswith(("running", "exits")):
            self._forget_xids(report)
        if is_alone:
            for ended in report.exits:
                self._log.write(f"{ended.path} is refused by the API and moved aside")
                self._running.put_aside(ended)
                self._sent_alone.discard(ended.signature)
            self._exits = [ended for ended in self._exits if ended not in report.exits]
        else:
            self._sent_alone |= {ended.signature for ended in report.exits}
        if report.inventory is not None:
            self._inventory_sent, self._inventory_wanted = (report.digest, now), False
        return bool(self._sent_alone)

    def without_inventory(self, report: ReportContent, now: float) -> ReportContent:
        """Return the same report without its inventory, which makes it large.

        The inventory is sent again when it changes, when the server asks for it, or after `inventory_s`.
        """
        self._inventory_sent, self._inventory_wanted = (report.digest, now), False
        return replace(report, inventory=None)

    def _is_due(self, known: str, now: float) -> bool:
        if self._inventory_sent is None:
            return True
        sent, at = self._inventory_sent
        return sent != known or now - at >= self._inventory_s

    def _forget_xids(self, report: ReportContent) -> None:
        for xid in report.xids:
            if self._xids.get(xid.key) == xid:
                del self._xids[xid.key]
            if xid.source and not xid.boot_id:
                codes = {*self._state.reported_from_dcgm, xid.xid}
                self._state.reported_from_dcgm = sorted(codes)[-REPORTED_FROM_DCGM_MAX:]
        self._state.unreported = self._in_order()  # the caller saves the state after it handled the response
        sent = [xid.at_s for xid in report.xids if _is_of_this_log(xid)]
        if sent:
            # The cursor may only pass XIDs that are no longer in the outbox.
            waiting = min((xid.at_s for xid in self._xids.values() if _is_of_this_log(xid)), default=max(sent) + 1)
            if max(sent) < waiting:
                self._state.reported_s = max(self._state.reported_s, *sent)

    def _persist(self) -> None:
        """Save the outbox before it is sent: the instance may be reset before the API is reachable again."""
        unreported = self._in_order()
        if unreported != self._state.unreported:
            self._state.unreported = unreported
            self._state.save()

    def _in_order(self) -> list[Xid]:
        """Return the XIDs, the oldest first: those of earlier boots first, in their stored order."""
        return sorted(self._xids.values(), key=lambda xid: -1.0 if xid.boot_id else xid.at_s)


def _is_of_this_log(xid: Xid) -> bool:
    """Return whether the XID is a line of this boot's kernel log, so that the cursor of the log covers it."""
    return not xid.boot_id and not xid.source
