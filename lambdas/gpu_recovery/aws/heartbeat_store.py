"""Heartbeats in the instance table, under the key `<instance>#beat`, and GPU inventories under `<instance>#gpus`.

A heartbeat is an item of its own, because it is written four times a minute. The instance's record is ten times as
large, and a heartbeat must not make a concurrent decision about the record stale. A report is one conditional
UpdateItem, which `heartbeat_update.py` builds. DynamoDB returns the item before the write, so no read is needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from botocore.exceptions import ClientError

from gpu_recovery.aws.dynamodb import condition_failed, plain, typed
from gpu_recovery.aws.heartbeat_update import counts_key, rank_from, rank_text, report_request
from gpu_recovery.aws.instance_store import DynamoInstanceStore
from gpu_recovery.aws.item_codec import SCHEMA, decode, encode, from_iso, readable, reading, to_iso
from gpu_recovery.core.heartbeat import (
    BY_ROLE,
    REPORTS_MAX,
    AgentCommand,
    Heartbeat,
    ReportFreshness,
    report_freshness,
    retry_after_s,
    window_of,
)
from gpu_recovery.ports.errors import AnotherAgent, SequenceStale, TooManyReports, TryAgainSoon

HEARTBEAT_WRITE_ATTEMPTS_MAX = 3
"""Tries of the write of one report.

Two concurrent reports may change the item between two tries. A third conflict means that reports arrive too fast.
"""


def heartbeat_key(instance_id: str) -> str:
    """Return the key of an instance's heartbeat."""
    return f"{instance_id}#beat"


def inventory_key(instance_id: str) -> str:
    """Return the key of an instance's inventory."""
    return f"{instance_id}#gpus"


class DynamoHeartbeatStore(DynamoInstanceStore):
    """The heartbeats of the store; see `ports.heartbeats.HeartbeatStore` for the contract of each method."""

    def save_heartbeat(self, beat: Heartbeat, present: bool, by: str = BY_ROLE) -> Heartbeat | None:
        """Write the heartbeat of one agent report.

        Args:
            beat: the heartbeat made of the report.
            present: False for a late report, which does not show that the instance is alive now.
            by: the id of the token that the report came with, or BY_ROLE.

        Returns:
            The heartbeat before the write; None if this is the first report.

        Raises:
            SequenceStale: a newer report of this boot, or of a later boot, was received.
            AnotherAgent: another agent has taken the place of the sender.
            TooManyReports: `by` has reached its limit in this window.
            TryAgainSoon: other reports changed the item at every try.
        """
        known: Heartbeat | None = None
        for _ in range(HEARTBEAT_WRITE_ATTEMPTS_MAX):
            written, known = self._write(report_request(beat, present, known, by), beat.instance_id)
            if written or (known is None and (not present or self._write_first(beat, by))):
                return known
            if known is not None and _is_delayed(beat, present, known, by):
                return known
        raise TryAgainSoon(
            f"the heartbeat of {beat.instance_id} was written {HEARTBEAT_WRITE_ATTEMPTS_MAX} times meanwhile"
        )

    def _write_first(self, beat: Heartbeat, by: str) -> bool:
        """Write the first report of an instance. Return False if another report has just created the item."""
        encoded = {name: value for name, value in encode(replace(beat, ranks={})).items() if value not in (None, "")}
        del encoded["heard"]
        encoded["ranks"] = {log: rank_text(rank) for log, rank in beat.ranks.items()}
        window = window_of(beat.seen_at)
        counted = {"schema": SCHEMA, "window": window, counts_key(window): {by: 1}, counts_key(window + 1): {}}
        item = {**encoded, **counted, "container_inst_id": heartbeat_key(beat.instance_id)}
        return self.table.put(item, "attribute_not_exists(container_inst_id)")

    def _write(self, request: Mapping[str, Any], instance_id: str) -> tuple[bool, Heartbeat | None]:
        """Make the write of a report.

        Returns:
            True and the heartbeat before the write, or False and the present heartbeat if the condition failed. The
            heartbeat is None if there is no item.
        """
        try:
            answer = self.table.client.update_item(
                TableName=self.table.name,
                Key=typed({"container_inst_id": heartbeat_key(instance_id)}),
                ReturnValues="ALL_OLD",
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
                **request,
            )
        except ClientError as error:
            if not condition_failed(error):
                raise
            refused: Any = error.response
            return False, _heartbeat(plain(refused["Item"])) if "Item" in refused else None
        return True, _heartbeat(plain(answer["Attributes"])) if answer.get("Attributes") else None

    def load_heartbeats(
        self, instance_ids: Sequence[str], unreadable: list[Exception] | None = None, may_lag: bool = False
    ) -> Mapping[str, Heartbeat]:
        """Return the heartbeats by instance id. Instances that never reported are left out."""
        keys = [heartbeat_key(instance_id) for instance_id in instance_ids]
        items = self.table.get_all(keys, consistent=not may_lag)
        beats = readable(_heartbeat, items.values(), unreadable)
        return {beat.instance_id: beat for beat in beats}

    def mark_heartbeat_missing(self, instance_id: str, seen_at: datetime) -> bool:
        """Record that the instance was last seen at `seen_at`. Return False if it was seen again."""
        values = {":seen": to_iso(seen_at)}
        return self._update(instance_id, "SET silent_since = :seen", "seen_at = :seen", {}, values)

    def mark_rank_heartbeat_missing(self, instance_id: str, log_id: int, seen_at: datetime) -> bool:
        """Record that the rank was last seen at `seen_at`. Return False if it was seen again."""
        log = str(log_id)
        values = {":seen": to_iso(seen_at), ":logs": {log}}
        return self._update(
            instance_id, "ADD silent_ranks :logs", "begins_with(ranks.#log, :seen)", {"#log": log}, values
        )

    def forget_ranks(self, instance_id: str, seen_at: Mapping[str, datetime]) -> bool:
        """Remove ranks from the heartbeat, by running log. Return False if a rank was seen after its time."""
        names = {f"#l{n}": log for n, log in enumerate(seen_at)}
        values = {f":s{n}": to_iso(at) for n, at in enumerate(seen_at.values())}
        unseen = " AND ".join(f"begins_with(ranks.#l{n}, :s{n})" for n in range(len(seen_at)))
        change = f"REMOVE {', '.join(f'ranks.{name}' for name in names)} DELETE silent_ranks :logs"
        return self._update(instance_id, change, unseen, names, {**values, ":logs": set(seen_at)})

    def mark_duplicate_agent(self, instance_id: str, at: datetime) -> None:
        """Record that operators were notified at `at` of two agents on one instance."""
        self._update(instance_id, "SET doubled_at = :at", "attribute_exists(seen_at)", {}, {":at": to_iso(at)})

    def add_agent_command(self, instance_id: str, order: AgentCommand) -> bool:
        """Save a command for the agent of the instance. Return False if the instance has no heartbeat."""
        names, values = {"#o": order.order_id}, {":o": encode(order)}
        return self._update(instance_id, "SET orders.#o = :o", "attribute_exists(orders)", names, values)

    def remove_agent_commands(self, instance_id: str, order_ids: Sequence[str]) -> None:
        """Remove commands that the agent has carried out or that are void."""
        if order_ids:
            names = {f"#o{n}": order_id for n, order_id in enumerate(order_ids)}
            change = f"REMOVE {', '.join(f'orders.{name}' for name in names)}"
            self._update(instance_id, change, "attribute_exists(orders)", names, {})

    def _update(
        self, instance_id: str, change: str, condition: str, names: Mapping[str, str], values: Mapping[str, Any]
    ) -> bool:
        return self.table.update(heartbeat_key(instance_id), change, condition, names, values) is not None

    def save_inventory(self, instance_id: str, digest: str, text: str, at: datetime) -> None:
        """Save the GPU inventory of the instance in place of the stored inventory."""
        key = {"container_inst_id": inventory_key(instance_id)}
        item = {**key, "digest": digest, "text": text, "at": to_iso(at), "schema": SCHEMA}
        self.table.client.put_item(TableName=self.table.name, Item=typed(item))

    def load_inventory(self, instance_id: str) -> tuple[str, str, datetime] | None:
        """Return the digest, the JSON text and the time of the latest inventory; None if there is none."""
        item = self.table.get(inventory_key(instance_id))
        return (item["digest"], item["text"], from_iso(item["at"])) if item is not None else None


def _is_delayed(beat: Heartbeat, present: bool, known: Heartbeat, by: str) -> bool:
    """Return whether the report is from an earlier boot, so that it need not be written.

    Raises:
        SequenceStale: a newer report was received.
        AnotherAgent: another agent has taken the place of the sender.
        TooManyReports: `by` has reached its limit in this window.
    """
    freshness = report_freshness(beat, known, present)
    if freshness is ReportFreshness.OVER:
        return True
    if freshness is ReportFreshness.STALE:
        raise SequenceStale(known.sequence)
    if freshness is ReportFreshness.ANOTHER:
        raise AnotherAgent(known)
    if known.window == window_of(beat.seen_at) and known.heard.get(by, 0) >= REPORTS_MAX:
        raise TooManyReports(retry_after_s(beat.seen_at))
    return False


def _heartbeat(item: Mapping[str, Any]) -> Heartbeat:
    name = item["container_inst_id"]
    with reading(f"heartbeat {name}", item):
        silent = item.get("silent_ranks", frozenset())
        ranks = {log: replace(rank_from(text), silent=log in silent) for log, text in item.get("ranks", {}).items()}
        counts = item.get(counts_key(int(item.get("window", 0))), {})
        beat: Heartbeat = decode(
            Heartbeat, {"instance_id": name.removesuffix("#beat"), **item, "ranks": {}, "heard": counts}
        )
        return replace(beat, ranks=ranks)
