"""Heartbeats in memory: `ports.heartbeats.HeartbeatStore` with the results that DynamoDB gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from gpu_recovery.core.heartbeat import (
    BY_ROLE,
    REPORTS_MAX,
    AgentCommand,
    Heartbeat,
    ReportFreshness,
    past_runs,
    report_freshness,
    retry_after_s,
    window_of,
)
from gpu_recovery.ports.errors import AnotherAgent, SequenceStale, TooManyReports


class MemoryHeartbeats:
    """Implements `ports.heartbeats.HeartbeatStore`, which documents arguments, results and errors."""

    def __init__(self) -> None:
        self.heartbeats: dict[str, Heartbeat] = {}
        self.inventories: dict[str, tuple[str, str, datetime]] = {}

    def save_heartbeat(self, beat: Heartbeat, present: bool, by: str = BY_ROLE) -> Heartbeat | None:
        """Save the heartbeat of one agent report, unless it is outdated or over the rate limit of its token."""
        known = self.heartbeats.get(beat.instance_id)
        window = window_of(beat.seen_at)
        if known is None:
            if present:
                self.heartbeats[beat.instance_id] = replace(beat, window=window, heard={by: 1})
            return None
        freshness = report_freshness(beat, known, present)
        if freshness is ReportFreshness.STALE:
            raise SequenceStale(known.sequence)
        if freshness is ReportFreshness.ANOTHER:
            raise AnotherAgent(known)
        if freshness is ReportFreshness.OVER:
            return known
        counts = known.heard if known.window == window else {}
        if counts.get(by, 0) >= REPORTS_MAX:
            raise TooManyReports(retry_after_s(beat.seen_at))
        # All changed fields in one copy, because heartbeats are the most frequent writes.
        fields: dict[str, Any] = {"window": window, "heard": {**counts, by: counts.get(by, 0) + 1}}
        if beat.boot_id:
            fields |= {"boot_id": beat.boot_id, "sequence": beat.sequence}
        if present:
            fields |= _presence_fields(beat, known)
        self.heartbeats[beat.instance_id] = replace(known, **fields)
        return known

    def load_heartbeats(
        self, instance_ids: Sequence[str], unreadable: list[Exception] | None = None, may_lag: bool = False
    ) -> Mapping[str, Heartbeat]:
        """Return the heartbeats by instance id."""
        return {
            instance_id: self.heartbeats[instance_id] for instance_id in instance_ids if instance_id in self.heartbeats
        }

    def mark_heartbeat_missing(self, instance_id: str, seen_at: datetime) -> bool:
        """Record that the instance was last seen at `seen_at`, unless it was seen again."""
        known = self.heartbeats.get(instance_id)
        if known is None or known.seen_at != seen_at:
            return False
        self.heartbeats[instance_id] = replace(known, silent_since=seen_at)
        return True

    def mark_rank_heartbeat_missing(self, instance_id: str, log_id: int, seen_at: datetime) -> bool:
        """Record that the rank was last seen at `seen_at`, unless it was seen again."""
        known, log = self.heartbeats.get(instance_id), str(log_id)
        if known is None or log not in known.ranks or known.ranks[log].seen_at != seen_at:
            return False
        ranks = {**known.ranks, log: replace(known.ranks[log], silent=True)}
        self.heartbeats[instance_id] = replace(known, ranks=ranks)
        return True

    def forget_ranks(self, instance_id: str, seen_at: Mapping[str, datetime]) -> bool:
        """Remove ranks from a heartbeat, unless a rank of `seen_at` was seen again."""
        known = self.heartbeats.get(instance_id)
        if known is None or any(
            log not in known.ranks or known.ranks[log].seen_at != at for log, at in seen_at.items()
        ):
            return False
        self.heartbeats[instance_id] = replace(
            known, ranks={log: rank for log, rank in known.ranks.items() if log not in seen_at}
        )
        return True

    def mark_duplicate_agent(self, instance_id: str, at: datetime) -> None:
        """Record when operators were notified of two agents on one instance."""
        if instance_id in self.heartbeats:
            self.heartbeats[instance_id] = replace(self.heartbeats[instance_id], doubled_at=at)

    def add_agent_command(self, instance_id: str, order: AgentCommand) -> bool:
        """Save a command for the agent, if the instance has a heartbeat."""
        known = self.heartbeats.get(instance_id)
        if known is None:
            return False
        self.heartbeats[instance_id] = replace(known, orders={**known.orders, order.order_id: order})
        return True

    def remove_agent_commands(self, instance_id: str, order_ids: Sequence[str]) -> None:
        """Remove commands from the heartbeat."""
        known = self.heartbeats.get(instance_id)
        if known is not None:
            left = {order_id: order for order_id, order in known.orders.items() if order_id not in order_ids}
            self.heartbeats[instance_id] = replace(known, orders=left)

    def save_inventory(self, instance_id: str, digest: str, text: str, at: datetime) -> None:
        """Save the GPU inventory of an instance in place of the stored inventory."""
        self.inventories[instance_id] = (digest, text, at)

    def load_inventory(self, instance_id: str) -> tuple[str, str, datetime] | None:
        """Return the digest, the JSON text and the time of the latest inventory, or None."""
        return self.inventories.get(instance_id)


def _presence_fields(beat: Heartbeat, known: Heartbeat) -> dict[str, Any]:
    """Return the further fields that a report writes if it shows that the instance is alive now."""
    fields: dict[str, Any] = {"seen_at": beat.seen_at, "silent_since": None, "ranks": {**known.ranks, **beat.ranks}}
    fields |= {"holds": beat.holds, "activity": beat.activity}
    if beat.boot_id:
        fields["booted_at"] = beat.booted_at
    if beat.run:
        fields |= {"run": beat.run, "past_runs": past_runs(beat, known)}
    if beat.interval_s:
        fields["interval_s"] = beat.interval_s
    if beat.health is not None:
        fields |= {"health": beat.health, "digest": beat.digest, "sentence": beat.sentence}
        fields["utilisation"] = beat.utilisation
        fields["idle_since"] = (known.idle_since or beat.idle_since) if beat.idle_since is not None else None
    return fields
