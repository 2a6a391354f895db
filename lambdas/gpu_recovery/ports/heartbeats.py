"""Interface of the heartbeats, a part of the store. `unreadable` means what it does in `ports.store`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from gpu_recovery.core.heartbeat import BY_ROLE, AgentCommand, Heartbeat


class HeartbeatStore(Protocol):
    """Heartbeats of instances, commands for their agents, and GPU inventories."""

    def save_heartbeat(self, beat: Heartbeat, present: bool, by: str = BY_ROLE) -> Heartbeat | None:
        """Write the heartbeat of one agent report.

        `beat.ranks` are the reported ranks. Other stored ranks stay until `forget_ranks` removes them. An agent with
        another run takes the place of the agent before.

        Args:
            present: False for a late report, which does not show that the instance is alive now. It advances only the
                sequence of its own boot.
            by: the id of the token that the report came with, or BY_ROLE. Each has a rate limit of its own.

        Returns:
            The heartbeat before the write; None if this is the first report.

        Raises:
            SequenceStale: a newer report of this boot, or of a later boot, was received.
            AnotherAgent: another agent has taken the place of the sender.
            TooManyReports: `by` has reached its limit in this window.
            TryAgainSoon: other reports changed the item at every try.
        """

    def load_heartbeats(
        self, instance_ids: Sequence[str], unreadable: list[Exception] | None = None, may_lag: bool = False
    ) -> Mapping[str, Heartbeat]:
        """Return the heartbeats by instance id. Instances that never reported are left out.

        Args:
            instance_ids: the instances.
            unreadable: receives the errors of heartbeats that cannot be read.
            may_lag: whether the heartbeats may lag by a moment, as for a list that nothing decides on. It costs half.
        """

    def forget_ranks(self, instance_id: str, seen_at: Mapping[str, datetime]) -> bool:
        """Remove ranks from the heartbeat of an instance.

        Args:
            seen_at: when each rank was last seen, by its running log as text.

        Returns:
            False without a write if any of these ranks was seen after its time.
        """

    def mark_duplicate_agent(self, instance_id: str, at: datetime) -> None:
        """Record that operators were notified at `at` of two agents on one instance."""

    def mark_heartbeat_missing(self, instance_id: str, seen_at: datetime) -> bool:
        """Record that the instance was last seen at `seen_at`. Return False if it was seen again."""

    def mark_rank_heartbeat_missing(self, instance_id: str, log_id: int, seen_at: datetime) -> bool:
        """Record that the rank was last seen at `seen_at`. Return False if it was seen again."""

    def add_agent_command(self, instance_id: str, order: AgentCommand) -> bool:
        """Save a command for the agent of the instance. Return False if the instance has no heartbeat."""

    def remove_agent_commands(self, instance_id: str, order_ids: Sequence[str]) -> None:
        """Remove commands that the agent has carried out or that are void."""

    def save_inventory(self, instance_id: str, digest: str, text: str, at: datetime) -> None:
        """Save the GPU inventory of an instance in place of the stored inventory.

        Args:
            digest: the agent's digest of the inventory.
            text: the inventory as JSON text.
            at: when the inventory was received.
        """

    def load_inventory(self, instance_id: str) -> tuple[str, str, datetime] | None:
        """Return the digest, the JSON text and the time of the latest inventory; None if there is none."""
