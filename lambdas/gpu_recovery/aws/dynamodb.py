"""The few shapes of DynamoDB call that all stores are made of, on the low-level client.

The typed serialiser is boto3's own. A failed condition is told apart from every other error, because it is the one
answer that the loop expects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from boto3.dynamodb.types import TypeDeserializer, TypeSerializer
from botocore.exceptions import ClientError

from gpu_recovery.ports.errors import TryAgainSoon

BATCH_MAX = 100
CONFLICTS_MAX = 5
THROTTLING_CODES = frozenset({"ThrottlingError", "ProvisionedThroughputExceeded"})
"""Reasons for which a transaction is canceled that say nothing about its conditions."""
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


def _past_conflicts(call: Callable[..., Any], request: Mapping[str, Any]) -> Any:
    """The answer of `call`, made again while a transaction holds the item: that is over within milliseconds, and
    says nothing about the condition."""
    for _ in range(CONFLICTS_MAX):
        try:
            return call(**request)
        except ClientError as error:
            if error.response["Error"]["Code"] != "TransactionConflictException":
                raise
    raise TryAgainSoon(f"dynamodb: a transaction held the item {CONFLICTS_MAX} times")


def _is_own(error: ClientError, item: Mapping[str, Any]) -> bool:
    """Whether the condition failed because of this very write: an earlier try was heard, and its answer was lost."""
    answer: Any = error.response
    tried_again = answer.get("ResponseMetadata", {}).get("RetryAttempts", 0) > 0
    return tried_again and "Item" in answer and plain(answer["Item"]) == plain(item)


def _raise_if_too_often(error: ClientError) -> None:
    """DynamoDB refused a transaction unread because of its rate; botocore does not try such a one again."""
    answer: Mapping[str, Any] = error.response
    codes = {reason.get("Code", "None") for reason in answer.get("CancellationReasons", [])}
    if codes & THROTTLING_CODES:
        raise TryAgainSoon(f"dynamodb TransactWriteItems: {', '.join(sorted(codes))}") from error


def _was_overtaken(error: ClientError) -> bool:
    """Whether a transaction was canceled for a failed condition or another write under way, and for nothing else."""
    if error.response["Error"]["Code"] != "TransactionCanceledException":
        return False
    answer: Mapping[str, Any] = error.response
    codes = {reason.get("Code", "None") for reason in answer.get("CancellationReasons", [])} - {"None"}
    return bool(codes) and codes <= {"ConditionalCheckFailed", "TransactionConflict"}


@dataclass(frozen=True, slots=True)
class Put:
    """The write of a whole item under a condition."""

    item: Mapping[str, Any]
    condition: str
    values: Mapping[str, Any] = field(default_factory=dict)

    def request(self) -> dict[str, Any]:
        """Its parameters, as PutItem and a transaction have them in common."""
        request: dict[str, Any] = {"Item": typed(self.item), "ConditionExpression": self.condition}
        return request | ({"ExpressionAttributeValues": typed(self.values)} if self.values else {})


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
            found |= get_together({self: keys[start : start + BATCH_MAX]})[self]
        return found

    def put(self, item: Mapping[str, Any], condition: str, values: Mapping[str, Any] | None = None) -> bool:
        """Write the whole item if `condition` holds; whether it did."""
        request = {"TableName": self.name, **Put(item, condition, values or {}).request()}
        try:
            _past_conflicts(self.client.put_item, {**request, "ReturnValuesOnConditionCheckFailure": "ALL_OLD"})
        except ClientError as error:
            if condition_failed(error):
                return _is_own(error, request["Item"])
            raise
        return True

    def put_all(self, puts: Sequence[Put]) -> bool:
        """Write every item if every condition holds, else none; whether they did.

        A transaction that met another write of one of its items counts as one whose condition failed: somebody else is
        there, so what was decided on may be old.
        """
        if len(puts) == 1:
            return self.put(puts[0].item, puts[0].condition, puts[0].values)
        actions = [{"Put": {"TableName": self.name, **one.request()}} for one in puts]
        try:
            self.client.transact_write_items(TransactItems=actions)
        except ClientError as error:
            if _was_overtaken(error):
                return False
            _raise_if_too_often(error)
            raise
        return True

    def transact(self, actions: Sequence[Mapping[str, Any]]) -> dict[int, str]:
        """All of `actions` or none; by number and code those for which there were none, empty if all were done."""
        try:
            self.client.transact_write_items(TransactItems=[dict(one) for one in actions])
        except ClientError as error:
            if not _was_overtaken(error):
                _raise_if_too_often(error)
                raise
            answer: Mapping[str, Any] = error.response
            reasons = answer["CancellationReasons"]
            return {n: str(one["Code"]) for n, one in enumerate(reasons) if one.get("Code", "None") != "None"}
        return {}

    def update(
        self, key: str, change: str, condition: str, names: Mapping[str, str], values: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        """Change one item if `condition` holds; the item afterwards, None if it did not hold."""
        request: dict[str, Any] = {
            "TableName": self.name,
            "Key": typed({self.key: key}),
            "UpdateExpression": change,
            "ConditionExpression": condition,
            "ReturnValues": "ALL_NEW",
        }
        if names:
            request["ExpressionAttributeNames"] = dict(names)
        if values:
            request["ExpressionAttributeValues"] = typed(values)
        try:
            answer = _past_conflicts(self.client.update_item, request)
        except ClientError as error:
            if condition_failed(error):
                return None
            raise
        return plain(answer["Attributes"])

    def query(
        self,
        index: str,
        condition: str,
        names: Mapping[str, str],
        values: Mapping[str, Any],
        limit: int | None = None,
        start: Mapping[str, Any] | None = None,
    ) -> Iterator[dict[str, Any]]:
        """The items of an index in key order, at most `limit`, every page read."""
        request: dict[str, Any] = {
            "TableName": self.name,
            "IndexName": index,
            "KeyConditionExpression": condition,
            "ExpressionAttributeNames": dict(names),
            "ExpressionAttributeValues": typed(values),
        }
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


def get_together(keys: Mapping[Table, Sequence[str]]) -> dict[Table, dict[str, dict[str, Any]]]:
    """The items that exist, by table and key, freshly read in one call; at most BATCH_MAX keys, of one account."""
    found: dict[Table, dict[str, dict[str, Any]]] = {table: {} for table in keys}
    by_name = {table.name: table for table in keys}
    wanted: Any = {
        table.name: {"Keys": [typed({table.key: one}) for one in names], "ConsistentRead": True}
        for table, names in keys.items()
    }
    while wanted:
        answer = next(iter(keys)).client.batch_get_item(RequestItems=wanted)
        for name, items in answer["Responses"].items():
            table = by_name[name]
            found[table] |= {values[table.key]: values for values in map(plain, items)}
        wanted = answer.get("UnprocessedKeys")
    return found
