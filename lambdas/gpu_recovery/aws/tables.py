"""The few shapes of DynamoDB call that both stores are made of, on the low-level client.

The typed serialiser is boto3's own. A failed condition is told apart from every other error, because it is the one
answer that the loop expects.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from boto3.dynamodb.types import TypeDeserializer, TypeSerializer
from botocore.exceptions import ClientError

from ..core.machine import Pending, due_at
from .items import encode, to_iso

SHARDS = 4
"""Over how many keys the `due` index is spread: each is one query a minute."""
BATCH_MAX = 100
_write, _read = TypeSerializer().serialize, TypeDeserializer().deserialize


def typed(values: Mapping[str, Any]) -> dict[str, Any]:
    """Plain values in DynamoDB's typed form."""
    return {key: _write(value) for key, value in values.items()}


def plain(item: Mapping[str, Any]) -> dict[str, Any]:
    """A typed item as plain values (numbers as Decimal)."""
    return {key: _read(value) for key, value in item.items()}


def condition_failed(error: ClientError) -> bool:
    """Whether a write was refused by its own condition."""
    return error.response["Error"]["Code"] == "ConditionalCheckFailedException"


def due_keys(
    name: str, deadline: datetime | None, look: datetime | None, commands: Sequence[Pending]
) -> dict[str, Any]:
    """The attributes that put a record into the sparse index `due`; none for a record that waits for nothing."""
    at = due_at(deadline, look, tuple(commands))
    return {} if at is None else {"shard": zlib.crc32(name.encode()) % SHARDS, "due_at": to_iso(at)}


class Table:
    """One table with one string key. `index` queries read every page."""

    def __init__(self, client: Any, name: str, key: str) -> None:
        self.client, self.name, self.key = client, name, key

    def get(self, key: str) -> dict[str, Any] | None:
        answer = self.client.get_item(TableName=self.name, Key=typed({self.key: key}), ConsistentRead=True)
        return plain(answer["Item"]) if "Item" in answer else None

    def get_all(self, keys: Sequence[str]) -> dict[str, dict[str, Any]]:
        """The items of `keys` that exist, by key, freshly read."""
        found: dict[str, dict[str, Any]] = {}
        for start in range(0, len(keys), BATCH_MAX):
            wanted: Any = {
                "Keys": [typed({self.key: k}) for k in keys[start : start + BATCH_MAX]],
                "ConsistentRead": True,
            }
            while wanted:
                answer = self.client.batch_get_item(RequestItems={self.name: wanted})
                for item in answer["Responses"].get(self.name, []):
                    values = plain(item)
                    found[values[self.key]] = values
                wanted = answer.get("UnprocessedKeys", {}).get(self.name)
        return found

    def put(self, item: Mapping[str, Any], condition: str, values: Mapping[str, Any] | None = None) -> bool:
        """Write the whole item if `condition` holds; whether it did."""
        request: dict[str, Any] = {"TableName": self.name, "Item": typed(item), "ConditionExpression": condition}
        if values:
            request["ExpressionAttributeValues"] = typed(values)
        try:
            self.client.put_item(**request)
        except ClientError as error:
            if condition_failed(error):
                return False
            raise
        return True

    def update(
        self, key: str, change: str, condition: str, names: Mapping[str, str], values: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        """Change one item if `condition` holds; the item afterwards, None if it did not hold."""
        request: dict[str, Any] = {
            "TableName": self.name, "Key": typed({self.key: key}), "UpdateExpression": change,
            "ConditionExpression": condition, "ReturnValues": "ALL_NEW",
        }  # fmt: skip
        if names:
            request["ExpressionAttributeNames"] = dict(names)
        if values:
            request["ExpressionAttributeValues"] = typed(values)
        try:
            answer = self.client.update_item(**request)
        except ClientError as error:
            if condition_failed(error):
                return None
            raise
        return plain(answer["Attributes"])

    def query(
        self, index: str, condition: str, names: Mapping[str, str], values: Mapping[str, Any], limit: int | None = None,
        start: Mapping[str, Any] | None = None,
    ) -> Iterator[dict[str, Any]]:  # fmt: skip
        """The items of an index in key order, at most `limit`, every page read."""
        request: dict[str, Any] = {
            "TableName": self.name, "IndexName": index, "KeyConditionExpression": condition,
            "ExpressionAttributeNames": dict(names), "ExpressionAttributeValues": typed(values),
        }  # fmt: skip
        if start:
            request["ExclusiveStartKey"] = typed(start)
        left = limit
        while left is None or left > 0:
            if left is not None:
                request["Limit"] = left
            answer = self.client.query(**request)
            for item in answer["Items"]:
                yield plain(item)
            left = None if left is None else left - len(answer["Items"])
            if "LastEvaluatedKey" not in answer:
                return
            request["ExclusiveStartKey"] = answer["LastEvaluatedKey"]

    def due(self, now: datetime) -> Iterator[str]:
        """The keys of records whose time has come, the longest overdue first within a shard."""
        for shard in range(SHARDS):
            names, values = {"#s": "shard", "#d": "due_at"}, {":s": shard, ":now": to_iso(now)}
            for item in self.query("due", "#s = :s AND #d <= :now", names, values):
                yield item[self.key]

    def settle(
        self, key: str, revision: int, due: Mapping[str, Any], done: Sequence[str], deferred: Mapping[str, datetime]
    ) -> None:
        """Take `done` out of a record and put `deferred` off. If others wrote it meanwhile, its due time is left to
        the reconciler, and what they took out stays out."""
        if self._settle(key, done, deferred, due, "#rev = :rev", {":rev": revision}):
            return
        if done or not deferred:
            self._settle(key, done, {}, None, "attribute_exists(#rev)", {})
        for command_id, until in deferred.items():
            self._settle(key, (), {command_id: until}, None, "attribute_exists(#c.#o0)", {})

    def _settle(
        self, key: str, done: Sequence[str], deferred: Mapping[str, datetime], due: Mapping[str, Any] | None,
        condition: str, read: Mapping[str, Any],
    ) -> bool:  # fmt: skip
        """One write, if `condition` holds; whether it did. `due` None leaves the due time as it is."""
        names = {"#rev": "revision"} | {f"#o{n}": command_id for n, command_id in enumerate((*done, *deferred))}
        names |= {"#c": "commands"} if done or deferred else {}  # DynamoDB refuses a name that is not used
        sets, gone = ["#rev = #rev + :one"], [f"#c.#o{n}" for n in range(len(done))]
        values: dict[str, Any] = {":one": 1, **read}
        for n, until in enumerate(deferred.values(), len(done)):
            sets += [f"#c.#o{n}.acting_until = :t{n}", f"#c.#o{n}.refusals = #c.#o{n}.refusals + :one"]
            values[f":t{n}"] = encode(until)
        if due is not None:
            names |= {"#s": "shard", "#d": "due_at"}
            if due:
                sets += ["#s = :s", "#d = :d"]
                values |= {":s": due["shard"], ":d": due["due_at"]}
            else:
                gone += ["#s", "#d"]
        change = f"SET {', '.join(sets)}" + (f" REMOVE {', '.join(gone)}" if gone else "")
        return self.update(key, change, condition, names, values) is not None
