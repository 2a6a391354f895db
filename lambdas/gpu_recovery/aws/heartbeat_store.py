"""Heartbeats, beside their instance in the same table: `<instance>#beat`, and `<instance>#gpus` for its inventory.

An item of its own, because it is written four times a minute: the instance's record is ten times as large, and whoever
decides on it must not be overtaken by a sign of life. A report is one conditional UpdateItem; what stood there before
comes back with it, so nothing need be read. `heartbeat_update.py` builds it.
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
"""A report may find the item as it was not, when two come at once; a third time means that it is flooded."""


def heartbeat_key(instance_id: str) -> str:
    """The key of an instance's heartbeat."""
    return f"{instance_id}#beat"


def inventory_key(instance_id: str) -> str:
    """The key of an instance's inventory."""
    return f"{instance_id}#gpus"


class DynamoHeartbeatStore(DynamoInstanceStore):
    """The part of the store that keeps heartbeats; see `ports.Store` for what each function promises."""

    def save_heartbeat(self, beat: Heartbeat, present: bool, by: str = BY_ROLE) -> Heartbeat | None:
        known: Heartbeat | None = None
        for _ in range(HEARTBEAT_WRITE_ATTEMPTS_MAX):
            done, known = self._write(report_request(beat, present, known, by), beat.instance_id)
            if done or (known is None and (not present or self._first(beat, by))):
                return known
            if known is not None and _refuse(beat, present, known, by):
                return known
        raise TryAgainSoon(
            f"the heartbeat of {beat.instance_id} was written {HEARTBEAT_WRITE_ATTEMPTS_MAX} times meanwhile"
        )

    def _first(self, beat: Heartbeat, by: str) -> bool:
        """Write the first report of an instance; False if somebody else just did."""
        said = {name: value for name, value in encode(replace(beat, ranks={})).items() if value not in (None, "")}
        del said["heard"]
        said["ranks"] = {log: rank_text(rank) for log, rank in beat.ranks.items()}
        window = window_of(beat.seen_at)
        counted = {"schema": SCHEMA, "window": window, counts_key(window): {by: 1}, counts_key(window + 1): {}}
        item = {**said, **counted, "container_inst_id": heartbeat_key(beat.instance_id)}
        return self.table.put(item, "attribute_not_exists(container_inst_id)")

    def _write(self, request: Mapping[str, Any], instance_id: str) -> tuple[bool, Heartbeat | None]:
        """Whether the write was made, and the item before it, or as it is."""
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
        self, instance_ids: Sequence[str], unreadable: list[Exception] | None = None
    ) -> Mapping[str, Heartbeat]:
        items = self.table.get_all([heartbeat_key(one) for one in instance_ids])
        found = readable(_heartbeat, items.values(), unreadable)
        return {beat.instance_id: beat for beat in found}

    def mark_heartbeat_missing(self, instance_id: str, seen_at: datetime) -> bool:
        values = {":seen": to_iso(seen_at)}
        return self._mark(instance_id, "SET silent_since = :seen", "seen_at = :seen", {}, values)

    def mark_rank_heartbeat_missing(self, instance_id: str, log_id: int, seen_at: datetime) -> bool:
        log = str(log_id)
        values = {":seen": to_iso(seen_at), ":logs": {log}}
        return self._mark(
            instance_id, "ADD silent_ranks :logs", "begins_with(ranks.#log, :seen)", {"#log": log}, values
        )

    def forget_ranks(self, instance_id: str, seen_at: Mapping[str, datetime]) -> bool:
        names = {f"#l{n}": log for n, log in enumerate(seen_at)}
        values = {f":s{n}": to_iso(at) for n, at in enumerate(seen_at.values())}
        unseen = " AND ".join(f"begins_with(ranks.#l{n}, :s{n})" for n in range(len(seen_at)))
        change = f"REMOVE {', '.join(f'ranks.{name}' for name in names)} DELETE silent_ranks :logs"
        return self._mark(instance_id, change, unseen, names, {**values, ":logs": set(seen_at)})

    def mark_duplicate_agent(self, instance_id: str, at: datetime) -> None:
        self._mark(instance_id, "SET doubled_at = :at", "attribute_exists(seen_at)", {}, {":at": to_iso(at)})

    def add_agent_command(self, instance_id: str, order: AgentCommand) -> bool:
        names, values = {"#o": order.order_id}, {":o": encode(order)}
        return self._mark(instance_id, "SET orders.#o = :o", "attribute_exists(orders)", names, values)

    def remove_agent_commands(self, instance_id: str, order_ids: Sequence[str]) -> None:
        if order_ids:
            names = {f"#o{n}": order_id for n, order_id in enumerate(order_ids)}
            change = f"REMOVE {', '.join(f'orders.{name}' for name in names)}"
            self._mark(instance_id, change, "attribute_exists(orders)", names, {})

    def _mark(
        self, instance_id: str, change: str, condition: str, names: Mapping[str, str], values: Mapping[str, Any]
    ) -> bool:
        return self.table.update(heartbeat_key(instance_id), change, condition, names, values) is not None

    def save_inventory(self, instance_id: str, digest: str, text: str, at: datetime) -> None:
        key = {"container_inst_id": inventory_key(instance_id)}
        item = {**key, "digest": digest, "text": text, "at": to_iso(at), "schema": SCHEMA}
        self.table.client.put_item(TableName=self.table.name, Item=typed(item))

    def load_inventory(self, instance_id: str) -> tuple[str, str, datetime] | None:
        item = self.table.get(inventory_key(instance_id))
        return (item["digest"], item["text"], from_iso(item["at"])) if item is not None else None


def _refuse(beat: Heartbeat, present: bool, known: Heartbeat, by: str) -> bool:
    """Why the report cannot be written, raised; whether it is one that need not be: of a boot that is over."""
    how = report_freshness(beat, known, present)
    if how is ReportFreshness.OVER:
        return True
    if how is ReportFreshness.STALE:
        raise SequenceStale(known.sequence)
    if how is ReportFreshness.ANOTHER:
        raise AnotherAgent(known)
    if known.window == window_of(beat.seen_at) and known.heard.get(by, 0) >= REPORTS_MAX:
        raise TooManyReports(retry_after_s(beat.seen_at))
    return False


def _heartbeat(item: Mapping[str, Any]) -> Heartbeat:
    name = item["container_inst_id"]
    with reading(f"heartbeat {name}", item):
        silent = item.get("silent_ranks", frozenset())
        ranks = {log: replace(rank_from(text), silent=log in silent) for log, text in item.get("ranks", {}).items()}
        heard = item.get(counts_key(int(item.get("window", 0))), {})
        beat: Heartbeat = decode(
            Heartbeat, {"instance_id": name.removesuffix("#beat"), **item, "ranks": {}, "heard": heard}
        )
        return replace(beat, ranks=ranks)
