"""DynamoDB calls that all stores share, on the low-level client: conditional writes, transactions, consistent reads.

Values are serialised by boto3's own typed serialiser. A failed condition is a return value and not an exception,
because the loop expects it: another writer was faster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from boto3.dynamodb.types import TypeDeserializer, TypeSerializer
from botocore.exceptions import ClientError

from gpu_recovery.core.lazy_dataclass import frozen_dataclass
from gpu_recovery.ports.errors import TryAgainSoon

BATCH_MAX = 100
"""Upper bound of keys in one BatchGetItem call (DynamoDB's limit)."""
ITEM_FULL = "Item size"
"""Part of the message with which DynamoDB refuses an item of more than 400 KB."""
CONFLICTS_MAX = 5
"""Tries of a write that conflicts with a transaction on the same item."""
THROTTLING_CODES = frozenset({"ThrottlingError", "ProvisionedThroughputExceeded"})
"""Cancellation reasons of a throttled transaction. They are no evidence about its conditions."""
_write, _read = TypeSerializer().serialize, TypeDeserializer().deserialize


def typed(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return plain values in DynamoDB's typed form."""
    return {key: _write(value) for key, value in values.items()}


def plain(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return a typed item as plain values, numbers as Decimal."""
    return {key: _read(value) for key, value in item.items()}


def condition_failed(error: ClientError) -> bool:
    """Return whether a write was refused because its condition failed."""
    return error.response["Error"]["Code"] == "ConditionalCheckFailedException"


def is_item_full(error: ClientError) -> bool:
    """Return whether a write was refused because its item would have more than 400 KB."""
    told = error.response["Error"]
    return told["Code"] == "ValidationException" and ITEM_FULL in told.get("Message", "")


def _retry_conflicts(call: Callable[..., Any], request: Mapping[str, Any]) -> Any:
    """Make the call, and repeat it while a transaction holds the item. Return the answer.

    A transaction ends within milliseconds, and the conflict is no evidence about the condition of this write.

    Raises:
        TryAgainSoon: a transaction held the item at each of CONFLICTS_MAX tries.
    """
    for _ in range(CONFLICTS_MAX):
        try:
            return call(**request)
        except ClientError as error:
            if error.response["Error"]["Code"] != "TransactionConflictException":
                raise
    raise TryAgainSoon(f"dynamodb: a transaction held the item {CONFLICTS_MAX} times")


def _is_own(error: ClientError, item: Mapping[str, Any]) -> bool:
    """Return whether this write itself made its condition fail: an earlier try was executed and its answer was lost."""
    answer: Any = error.response
    retried = answer.get("ResponseMetadata", {}).get("RetryAttempts", 0) > 0
    return retried and "Item" in answer and plain(answer["Item"]) == plain(item)


def _raise_if_throttled(error: ClientError) -> None:
    """Raise TryAgainSoon if DynamoDB throttled the transaction. botocore does not retry such a transaction."""
    answer: Mapping[str, Any] = error.response
    codes = {reason.get("Code", "None") for reason in answer.get("CancellationReasons", [])}
    if codes & THROTTLING_CODES:
        raise TryAgainSoon(f"dynamodb TransactWriteItems: {', '.join(sorted(codes))}") from error


def _has_lost_to_another_writer(error: ClientError) -> bool:
    """Return whether failed conditions or conflicting writes are the only reasons why a transaction was canceled."""
    if error.response["Error"]["Code"] != "TransactionCanceledException":
        return False
    answer: Mapping[str, Any] = error.response
    codes = {reason.get("Code", "None") for reason in answer.get("CancellationReasons", [])} - {"None"}
    return bool(codes) and codes <= {"ConditionalCheckFailed", "TransactionConflict"}


@frozen_dataclass()
class Put:
    """The write of a whole item under a condition."""

    item: Mapping[str, Any]
    condition: str
    values: Mapping[str, Any] = field(default_factory=dict)

    def request(self) -> dict[str, Any]:
        """Return the parameters that PutItem and a Put in a transaction have in common."""
        request: dict[str, Any] = {"Item": typed(self.item), "ConditionExpression": self.condition}
        return request | ({"ExpressionAttributeValues": typed(self.values)} if self.values else {})


class Table:
    """A table with a single string key.

    client: a low-level boto3 DynamoDB client.
    name:   the table's name.
    key:    the name of its key attribute.
    """

    def __init__(self, client: Any, name: str, key: str) -> None:
        self.client, self.name, self.key = client, name, key

    def get(self, key: str) -> dict[str, Any] | None:
        """Return the item with this key, consistently read; None if there is none."""
        answer = self.client.get_item(TableName=self.name, Key=typed({self.key: key}), ConsistentRead=True)
        return plain(answer["Item"]) if "Item" in answer else None

    def get_all(
        self, keys: Sequence[str], names: Sequence[str] = (), consistent: bool = True
    ) -> dict[str, dict[str, Any]]:
        """Return the existing items of `keys` by key. `keys` holds no key twice.

        Args:
            keys: the keys.
            names: the attributes to return, the key among them; empty: all.
            consistent: whether the items are read consistently. Otherwise they may lag, and cost half.
        """
        items: dict[str, dict[str, Any]] = {}
        for start in range(0, len(keys), BATCH_MAX):
            items |= get_together({self: keys[start : start + BATCH_MAX]}, names, consistent)[self]
        return items

    def put(self, item: Mapping[str, Any], condition: str, values: Mapping[str, Any] | None = None) -> bool:
        """Write the whole item if `condition` holds. Return whether the item was written.

        Args:
            item: the item as plain values.
            condition: the condition expression.
            values: the values of its placeholders.

        Raises:
            TryAgainSoon: transactions held the item at every try.
        """
        request = {"TableName": self.name, **Put(item, condition, values or {}).request()}
        try:
            _retry_conflicts(self.client.put_item, {**request, "ReturnValuesOnConditionCheckFailure": "ALL_OLD"})
        except ClientError as error:
            if condition_failed(error):
                return _is_own(error, request["Item"])
            raise
        return True

    def put_all(self, puts: Sequence[Put]) -> bool:
        """Write all items if every condition holds, otherwise none. Return whether the items were written.

        A conflict with another write of one of the items counts as a failed condition. The decision behind this write
        may then be based on an old record.

        Raises:
            TryAgainSoon: DynamoDB throttled the transaction.
        """
        if len(puts) == 1:
            return self.put(puts[0].item, puts[0].condition, puts[0].values)
        actions = [{"Put": {"TableName": self.name, **put.request()}} for put in puts]
        try:
            self.client.transact_write_items(TransactItems=actions)
        except ClientError as error:
            if _has_lost_to_another_writer(error):
                return False
            _raise_if_throttled(error)
            raise
        return True

    def transact(self, actions: Sequence[Mapping[str, Any]]) -> dict[int, str]:
        """Carry out all of `actions` or none.

        Args:
            actions: the actions as TransactWriteItems takes them.

        Returns:
            For each action that failed, its position and its cancellation code. Empty if all were carried out.

        Raises:
            TryAgainSoon: DynamoDB throttled the transaction.
        """
        try:
            self.client.transact_write_items(TransactItems=[dict(action) for action in actions])
        except ClientError as error:
            if not _has_lost_to_another_writer(error):
                _raise_if_throttled(error)
                raise
            answer: Mapping[str, Any] = error.response
            reasons = answer["CancellationReasons"]
            return {n: str(reason["Code"]) for n, reason in enumerate(reasons) if reason.get("Code", "None") != "None"}
        return {}

    def update(
        self, key: str, change: str, condition: str, names: Mapping[str, str], values: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        """Update one item if `condition` holds.

        Args:
            key: the item's key.
            change: the update expression.
            condition: the condition expression.
            names: the attribute names of placeholders that begin with `#`.
            values: the values of placeholders that begin with `:`.

        Returns:
            The item after the update; None, without a write, if the condition did not hold.

        Raises:
            TryAgainSoon: transactions held the item at every try.
        """
        return self.try_update(key, change, condition, names, values)[0]

    def try_update(
        self, key: str, change: str, condition: str, names: Mapping[str, str], values: Mapping[str, Any]
    ) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
        """Do what `update` does.

        Returns:
            The item after the update and None; or, without a write, None and the stored item, None if there is none.
        """
        request: dict[str, Any] = {
            "TableName": self.name,
            "Key": typed({self.key: key}),
            "UpdateExpression": change,
            "ConditionExpression": condition,
            "ReturnValues": "ALL_NEW",
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
        if names:
            request["ExpressionAttributeNames"] = dict(names)
        if values:
            request["ExpressionAttributeValues"] = typed(values)
        try:
            answer = _retry_conflicts(self.client.update_item, request)
        except ClientError as error:
            if condition_failed(error):
                stored: Any = error.response
                return None, plain(stored["Item"]) if "Item" in stored else None
            raise
        return plain(answer["Attributes"]), None

    def query(
        self,
        index: str,
        condition: str,
        names: Mapping[str, str],
        values: Mapping[str, Any],
        limit: int | None = None,
        start: Mapping[str, Any] | None = None,
        page: int | None = None,
        shown: str = "",
        *,
        forward: bool = True,
    ) -> Iterator[dict[str, Any]]:
        """Yield the items of an index in key order and read as many pages as needed.

        Args:
            index: the index's name.
            condition: the key condition expression.
            names: the attribute names of placeholders that begin with `#`.
            values: the values of placeholders that begin with `:`.
            limit: upper bound of items; None for all.
            start: the key of the item after which the query starts; None for the beginning.
            page: upper bound of the items that one call reads; None: as many as DynamoDB returns (1 MB).
            shown: the projection expression; "": all attributes in the index.
            forward: False: in the reverse of the key order.
        """
        request: dict[str, Any] = {
            "TableName": self.name,
            "IndexName": index,
            "KeyConditionExpression": condition,
            "ExpressionAttributeNames": dict(names),
            "ExpressionAttributeValues": typed(values),
        }
        if start:
            request["ExclusiveStartKey"] = typed(start)
        if shown:
            request["ProjectionExpression"] = shown
        if not forward:
            request["ScanIndexForward"] = False
        left = limit
        while left is None or left > 0:
            if left is not None or page is not None:
                request["Limit"] = min(each for each in (left, page) if each is not None)
            answer = self.client.query(**request)
            for item in answer["Items"]:
                yield plain(item)
            left = None if left is None else left - len(answer["Items"])
            if "LastEvaluatedKey" not in answer:
                return
            request["ExclusiveStartKey"] = answer["LastEvaluatedKey"]


def get_together(
    keys: Mapping[Table, Sequence[str]], names: Sequence[str] = (), consistent: bool = True
) -> dict[Table, dict[str, dict[str, Any]]]:
    """Read items of several tables of one account in one batch. Keys that DynamoDB leaves unprocessed are read again.

    Args:
        keys: the keys by table, at most BATCH_MAX together and no key twice.
        names: the attributes to return, the keys among them; empty: all.
        consistent: whether the items are read consistently.

    Returns:
        The existing items by table and key.
    """
    items_by_table: dict[Table, dict[str, dict[str, Any]]] = {table: {} for table in keys}
    by_name = {table.name: table for table in keys}
    aliases = {f"#a{n}": name for n, name in enumerate(names)}
    shown = {"ProjectionExpression": ", ".join(aliases), "ExpressionAttributeNames": aliases} if names else {}
    wanted: Any = {
        table.name: {"Keys": [typed({table.key: key}) for key in table_keys], "ConsistentRead": consistent, **shown}
        for table, table_keys in keys.items()
    }
    while wanted:
        answer = next(iter(keys)).client.batch_get_item(RequestItems=wanted)
        for name, items in answer["Responses"].items():
            table = by_name[name]
            items_by_table[table] |= {values[table.key]: values for values in map(plain, items)}
        wanted = answer.get("UnprocessedKeys")
    return items_by_table
