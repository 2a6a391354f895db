"""DynamoDB in this process: a double that refuses what DynamoDB refuses, for tests and simulations.

It has the operations and parameters that the product and its tests use. It raises UnsupportedRequest for any other
parameter. A write takes effect at once, also in the indexes, unless a test stops an index (`DynamoTable.stop_index`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from simulator.dynamodb.attribute_values import Item, size_of, sort_key
from simulator.dynamodb.capacity_meter import CapacityMeter
from simulator.dynamodb.conditions import parse_condition, parse_key_condition
from simulator.dynamodb.errors import DynamoError, UnsupportedRequest, invalid
from simulator.dynamodb.expression_parser import Parser
from simulator.dynamodb.limits import (
    BATCH_GET_BYTES_MAX,
    BATCH_GET_KEYS_MAX,
    BATCH_WRITE_ITEMS_MAX,
    PAGE_BYTES_MAX,
    TRANSACTION_ACTIONS_MAX,
    TRANSACTION_BYTES_MAX,
)
from simulator.dynamodb.table import DynamoTable, Index, missing_table, projected
from simulator.dynamodb.writes import Placeholders, Write, condition_failed, prepared, present_item

Request = Mapping[str, Any]
Response = dict[str, Any]
_EXPRESSIONS = {"ExpressionAttributeNames", "ExpressionAttributeValues"}
_CONDITION = {"ConditionExpression", "ReturnValuesOnConditionCheckFailure", *_EXPRESSIONS}
SUPPORTED: dict[str, set[str]] = {
    "CreateTable": {"TableName", "KeySchema", "AttributeDefinitions", "GlobalSecondaryIndexes", "BillingMode"},
    "DescribeTable": {"TableName"},
    "GetItem": {"TableName", "Key", "ConsistentRead"},
    "BatchGetItem": {"RequestItems"},
    "BatchWriteItem": {"RequestItems"},
    "PutItem": {"TableName", "Item", "ReturnValues", *_CONDITION},
    "UpdateItem": {"TableName", "Key", "UpdateExpression", "ReturnValues", *_CONDITION},
    "DeleteItem": {"TableName", "Key", "ReturnValues", *_CONDITION},
    "Query": {
        "TableName",
        "IndexName",
        "KeyConditionExpression",
        "FilterExpression",
        "ProjectionExpression",
        "Limit",
        "ExclusiveStartKey",
        "ScanIndexForward",
        *_EXPRESSIONS,
    },
    "Scan": {"TableName", "ConsistentRead", "Limit", "ExclusiveStartKey"},
    "TransactWriteItems": {"TransactItems", "ClientRequestToken"},
}
"""Parameters of each operation."""
_OF_BATCH = {"Keys", "ConsistentRead", "ProjectionExpression", "ExpressionAttributeNames"}
_OF_ACTION = {"TableName", "Item", "Key", "UpdateExpression", *_CONDITION}


class DynamoDb:
    """The tables of one account and region.

    Attributes:
        tables: the tables by name.
        meter: counts the units of every call; None: units are not counted.
    """

    def __init__(self) -> None:
        self.tables: dict[str, DynamoTable] = {}
        self.meter: CapacityMeter | None = None
        self._transactions: dict[str, int] = {}
        """Hashes of the transactions that were carried out, by their token."""
        self._operations: dict[str, Callable[[Request], Response]] = {
            "CreateTable": self._create_table,
            "DescribeTable": self._describe_table,
            "GetItem": self._get_item,
            "BatchGetItem": self._batch_get_item,
            "BatchWriteItem": self._batch_write_item,
            "PutItem": lambda request: self._write("Put", request),
            "UpdateItem": lambda request: self._write("Update", request),
            "DeleteItem": lambda request: self._write("Delete", request),
            "Query": self._query,
            "Scan": self._scan,
            "TransactWriteItems": self._transact_write_items,
        }

    def call(self, operation: str, request: Request) -> Response:
        """Carry out an operation.

        Args:
            operation: its name, such as `PutItem`.
            request: its parameters, values in typed form. The double keeps parts of it, so nobody may change it later.

        Returns:
            The answer. Nobody may change it.

        Raises:
            DynamoError: DynamoDB refuses the request.
            UnsupportedRequest: the double does not have the operation or a parameter.
        """
        _check_supported(operation, request, SUPPORTED.get(operation, set()))
        return self._operations[operation](request)

    def _table(self, request: Request) -> DynamoTable:
        table = self.tables.get(request["TableName"])
        if table is None:
            raise missing_table()
        return table

    # -- tables --------------------------------------------------------------------------------------------------------

    def _create_table(self, request: Request) -> Response:
        table = DynamoTable(request)
        if table.name in self.tables:
            raise DynamoError("ResourceInUseException", f"Table already exists: {table.name}")
        self.tables[table.name] = table
        return {"TableDescription": {"TableName": table.name, "TableStatus": "ACTIVE"}}

    def _describe_table(self, request: Request) -> Response:
        table = self._table(request)
        return {"Table": {**table.description, "TableStatus": "ACTIVE", "ItemCount": len(table.items)}}

    # -- reads ---------------------------------------------------------------------------------------------------------

    def _get_item(self, request: Request) -> Response:
        table = self._table(request)
        key = table.key_of(request["Key"])
        item = table.items.get(key)
        if self.meter is not None:
            self.meter.read_item(table, key, item, request.get("ConsistentRead", False))
        return {} if item is None else {"Item": item}

    def _batch_get_item(self, request: Request) -> Response:
        wanted = request["RequestItems"]
        if not 1 <= sum(len(of_table["Keys"]) for of_table in wanted.values()) <= BATCH_GET_KEYS_MAX:
            raise invalid(
                f"Too many items requested for the BatchGetItem call: at least 1, at most {BATCH_GET_KEYS_MAX}"
            )
        found: dict[str, list[Item]] = {}
        left: dict[str, Any] = {}
        size = 0
        for name, of_table in wanted.items():
            _check_supported("BatchGetItem", of_table, _OF_BATCH)
            table, names = self._table({"TableName": name}), _answered_names(of_table, Placeholders(of_table))
            keys = [table.key_of(key) for key in of_table["Keys"]]
            if len(set(keys)) < len(keys):
                raise invalid("Provided list of item keys contains duplicates")
            found[name] = []
            for n, key in enumerate(keys):
                item = table.items.get(key)
                size += 0 if item is None else size_of(item)
                if size > BATCH_GET_BYTES_MAX:
                    left[name] = {**of_table, "Keys": of_table["Keys"][n:]}
                    break
                if self.meter is not None:
                    self.meter.read_item(table, key, item, of_table.get("ConsistentRead", False))
                if item is not None:
                    found[name].append(_answered(item, names))
        return {"Responses": found, "UnprocessedKeys": left}

    def _query(self, request: Request) -> Response:
        table, placeholders = self._table(request), Placeholders(request)
        index = table.index(request.get("IndexName", ""))
        key = parse_key_condition(request["KeyConditionExpression"], placeholders.names)
        placeholders.use("KeyConditionExpression", key.condition.used_names, key.condition.used_values)
        if key.partition != index.partition or key.sort not in (None, index.sort):
            raise invalid("Query condition missed key schema element")
        kept: Callable[[Item], bool] = lambda item: True  # noqa: E731 - the default of a function that may be replaced
        if "FilterExpression" in request:
            condition = parse_condition("FilterExpression", request["FilterExpression"], placeholders.names)
            placeholders.use("FilterExpression", condition.used_names, condition.used_values)
            kept = lambda item: condition.holds(item, placeholders.values)  # noqa: E731
        names = _answered_names(request, placeholders)
        placeholders.check_used()
        backwards = not request.get("ScanIndexForward", True)
        start = request.get("ExclusiveStartKey")
        if start is not None and set(start) != {*table.key_attributes, index.partition, index.sort}:
            raise invalid("The provided starting key is invalid")
        items = table.in_index(index.name, placeholders.values[key.value], backwards=backwards, start=start)
        if key.sort is not None:
            items = (item for item in items if key.condition.holds(item, placeholders.values))
        page = _page(table, items, request.get("Limit"), index)
        if self.meter is not None:
            self.meter.read_page(table, index, sort_key(placeholders.values[key.value]), page["Items"])
        page["Items"] = [_answered(item, names) for item in page["Items"] if kept(item)]
        return {**page, "Count": len(page["Items"])}

    def _scan(self, request: Request) -> Response:
        table = self._table(request)
        items = list(table.items.values())
        if "ExclusiveStartKey" in request:
            keys = list(table.items)
            items = items[keys.index(table.key_of(request["ExclusiveStartKey"])) + 1 :]
        return _page(table, iter(items), request.get("Limit"), None)

    # -- writes --------------------------------------------------------------------------------------------------------

    def _write(self, kind: str, request: Request) -> Response:
        write = prepared(self._table(request), kind, request)
        if not write.holds:
            raise condition_failed(write, request)
        self._apply([write])
        return _returned(write, request.get("ReturnValues", "NONE"))

    def _apply(self, writes: Sequence[Write], *, transaction: bool = False) -> None:
        for write in writes:
            if self.meter is not None:
                self.meter.wrote(write.table, write.key, write.old, write.new, transaction=transaction)
            write.apply()

    def _batch_write_item(self, request: Request) -> Response:
        actions = [
            (name, kind, parameters)
            for name, requests in request["RequestItems"].items()
            for entry in requests
            for kind, parameters in entry.items()
        ]
        if not 1 <= len(actions) <= BATCH_WRITE_ITEMS_MAX:
            raise invalid(f"Too many items requested for the BatchWriteItem call: {len(actions)}")
        writes = [
            prepared(self._table({"TableName": name}), kind.removesuffix("Request"), parameters)
            for name, kind, parameters in actions
        ]
        _check_distinct(writes, "Provided list of item keys contains duplicates")
        self._apply(writes)
        return {"UnprocessedItems": {}}

    def _transact_write_items(self, request: Request) -> Response:
        token = request.get("ClientRequestToken", "")
        asked = hash(json.dumps(request["TransactItems"], sort_keys=True, default=repr))
        if token and token in self._transactions:
            if self._transactions[token] != asked:
                raise DynamoError("IdempotentParameterMismatchException", "the token was used with other parameters")
            return {}
        actions = [next(iter(entry.items())) for entry in request["TransactItems"]]
        if not 1 <= len(actions) <= TRANSACTION_ACTIONS_MAX:
            raise invalid(
                "Member must have length less than or equal to "
                f"{TRANSACTION_ACTIONS_MAX}, Member must have length greater than or equal to 1"
            )
        for kind, parameters in actions:
            _check_supported(kind, parameters, _OF_ACTION)
        writes, reasons = self._prepared_together(actions)
        if any(reason["Code"] != "None" for reason in reasons):
            codes = ", ".join(reason["Code"] for reason in reasons)
            raise DynamoError(
                "TransactionCanceledException",
                f"Transaction cancelled, please refer cancellation reasons for specific reasons [{codes}]",
                {"CancellationReasons": reasons},
            )
        if sum(size_of(write.new or {}) for write in writes) > TRANSACTION_BYTES_MAX:
            raise invalid("Collection size of the items in the transaction has exceeded the allowed limit")
        self._apply(writes, transaction=True)
        if token:
            self._transactions[token] = asked
        return {}

    def _prepared_together(self, actions: Sequence[tuple[str, Request]]) -> tuple[list[Write], list[Response]]:
        """Return the writes of a transaction, and the reason of each that stops it."""
        writes = [prepared(self._table(parameters), kind, parameters) for kind, parameters in actions]
        _check_distinct(writes, "Transaction request cannot include multiple operations on one item")
        reasons: list[Response] = []
        for write, (_, parameters) in zip(writes, actions, strict=True):
            refused = {"Code": "ConditionalCheckFailed", "Message": "The conditional request failed"}
            reasons.append({"Code": "None"} if write.holds else refused | present_item(write, parameters))
        return writes, reasons


def _check_supported(operation: str, given: Request, supported: set[str]) -> None:
    unknown = set(given) - supported
    if unknown or not supported:
        raise UnsupportedRequest(f"the double does not have {operation} with {sorted(unknown)}")


def _check_distinct(writes: Sequence[Write], message: str) -> None:
    if len({(write.table.name, write.key) for write in writes}) < len(writes):
        raise invalid(message)


def _answered_names(request: Request, placeholders: Placeholders) -> frozenset[str] | None:
    """Return the attributes that `ProjectionExpression` names; None if the request has none.

    Raises:
        UnsupportedRequest: the expression names a part of an attribute.
    """
    if "ProjectionExpression" not in request:
        return None
    parser = Parser("ProjectionExpression", request["ProjectionExpression"], placeholders.names)
    paths = [parser.path()]
    while parser.take(","):
        paths.append(parser.path())
    parser.end()
    placeholders.use("ProjectionExpression", frozenset(parser.used_names), frozenset())
    if any(len(path) > 1 for path in paths):
        raise UnsupportedRequest("the double has projections of whole attributes")
    return frozenset(str(path[0]) for path in paths)


def _answered(item: Item, names: frozenset[str] | None) -> Item:
    return item if names is None else {name: item[name] for name in item if name in names}


def _page(table: DynamoTable, items: Iterator[Item], limit: int | None, index: Index | None) -> Response:
    """Return the first page of items: at most `limit`, and at most PAGE_BYTES_MAX, but at least one item."""
    size = 0
    found: list[Item] = []
    has_more = False
    for item in items:
        entry = item if index is None else projected(item, index)
        size += size_of(entry)
        has_more = len(found) == limit or (bool(found) and size > PAGE_BYTES_MAX)
        if has_more:
            break
        found.append(entry)
        last = item
    page: Response = {"Items": found, "Count": len(found), "ScannedCount": len(found)}
    if found and (has_more or len(found) == limit):
        page["LastEvaluatedKey"] = table.start_key(last, index)
    return page


def _returned(write: Write, wanted: str) -> Response:
    """Return the answer of a write. `wanted`: the parameter `ReturnValues`."""
    if wanted == "NONE":
        return {}
    of, _, age = wanted.partition("_")
    item = (write.new if age == "NEW" else write.old) or {}
    attributes = item if of == "ALL" else {name: item[name] for name in item if name in write.changed}
    return {"Attributes": attributes} if attributes else {}
