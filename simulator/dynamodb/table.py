"""A table of the DynamoDB double: items by key, and its global secondary indexes."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from simulator.dynamodb.attribute_values import Item, Value, check_item, size_of, sort_key, value_bytes
from simulator.dynamodb.errors import DynamoError, UnsupportedRequest, invalid, invalid_parameter
from simulator.dynamodb.limits import ITEM_BYTES_MAX, PARTITION_KEY_BYTES_MAX, SORT_KEY_BYTES_MAX


@dataclass
class Index:
    """A global secondary index.

    Attributes:
        name: its name.
        partition: name of its partition key's attribute.
        sort: name of its sort key's attribute.
        projected: names of the attributes that a query returns; None: all.
        entries: keys of the items in the index, by the value of the partition key.
        is_backfilling: whether the index was added to the table a moment ago and cannot be read yet.
    """

    name: str
    partition: str
    sort: str
    projected: frozenset[str] | None
    entries: dict[Any, dict[str, None]] = field(default_factory=dict)
    is_backfilling: bool = False
    outdated: DynamoTable | None = None
    """A copy of the table from which queries of the index are answered; None: the index shows every write."""
    in_order: dict[Any, list[tuple[Any, str]]] = field(default_factory=dict)
    """Positions of the entries of a partition key, in order. A write to the partition key removes them."""


class DynamoTable:
    """A table whose key is one attribute of type S, or two: a partition key and a sort key.

    Attributes:
        name: its name.
        key: name of the attribute of the partition key.
        sort: name of the attribute of the sort key; "" for none.
        primary: the items in the order of the sort key; None without a sort key.
        items: items by key. With a sort key it is both values, with a NUL between them.
        indexes: indexes by name.
    """

    def __init__(self, description: Mapping[str, Any]) -> None:
        """Create an empty table from the parameters of CreateTable.

        Raises:
            UnsupportedRequest: the key has another form.
        """
        self.description = dict(description)
        self.name = str(description["TableName"])
        self._types = {entry["AttributeName"]: entry["AttributeType"] for entry in description["AttributeDefinitions"]}
        keys = description["KeySchema"]
        self.key = str(keys[0]["AttributeName"])
        self.sort = str(keys[1]["AttributeName"]) if len(keys) > 1 else ""
        if any(self._types[name] != "S" for name in self.key_attributes):
            raise UnsupportedRequest("the double has tables with keys of type S")
        self.primary = Index("", self.key, self.sort, None) if self.sort else None
        self.items: dict[str, Item] = {}
        indexes = description.get("GlobalSecondaryIndexes", ())
        self.indexes = {entry["IndexName"]: self._index(entry) for entry in indexes}

    @property
    def key_attributes(self) -> tuple[str, ...]:
        """Names of the attributes of the key."""
        return (self.key, self.sort) if self.sort else (self.key,)

    def key_in(self, item: Item) -> Item:
        """Return the part of an item that is its key."""
        return {name: item[name] for name in self.key_attributes if name in item}

    def _index(self, entry: Mapping[str, Any]) -> Index:
        partition, sort = (key["AttributeName"] for key in entry["KeySchema"])
        projection = entry["Projection"]
        projected = None
        if projection["ProjectionType"] != "ALL":
            projected = frozenset({partition, sort, self.key, *projection.get("NonKeyAttributes", ())})
        return Index(entry["IndexName"], partition, sort, projected)

    def key_of(self, key: Mapping[str, Value]) -> str:
        """Return the key of an item.

        Args:
            key: the parameter `Key` of a request.

        Raises:
            DynamoError: the key has other attributes or another type, is empty or too long.
        """
        if set(key) != set(self.key_attributes) or any("S" not in value for value in key.values()):
            raise invalid("The provided key element does not match the schema")
        self._check_key(self.key, key[self.key], PARTITION_KEY_BYTES_MAX)
        if self.sort:
            self._check_key(self.sort, key[self.sort], SORT_KEY_BYTES_MAX)
        return "\0".join(str(key[name]["S"]) for name in self.key_attributes)

    @property
    def _ordered(self) -> tuple[Index, ...]:
        """The indexes, and the order of the items by the sort key of the table."""
        return (*self.indexes.values(), *([self.primary] if self.primary is not None else []))

    def _check_key(self, name: str, value: Value, bytes_max: int) -> None:
        size = value_bytes(value)
        if not size:
            raise invalid(
                "One or more parameter values are not valid. The AttributeValue for a key attribute cannot contain an "
                f"empty string value. Key: {name}"
            )
        if size > bytes_max:
            kind = "hashkey" if bytes_max == PARTITION_KEY_BYTES_MAX else "rangekey"
            raise invalid_parameter(f"Size of {kind} has exceeded the maximum size limit of {bytes_max} bytes")

    def check(self, item: Item, *, updated: bool = False) -> None:
        """Raise DynamoError if the table cannot hold the item."""
        check_item(item)
        self.key_of(self.key_in(item))
        if size_of(item) > ITEM_BYTES_MAX:
            to_update = "to update " if updated else ""
            raise invalid(f"Item size {to_update}has exceeded the maximum allowed size")
        for index in self.indexes.values():
            for name, bytes_max in ((index.partition, PARTITION_KEY_BYTES_MAX), (index.sort, SORT_KEY_BYTES_MAX)):
                if name in item and name != self.key:
                    self._check_index_key(index, name, item[name], bytes_max)

    def _check_index_key(self, index: Index, name: str, value: Value, bytes_max: int) -> None:
        if self._types[name] not in value:
            raise invalid_parameter(
                f"Type mismatch for Index Key {name} Expected: {self._types[name]} Actual: {next(iter(value))} "
                f"IndexName: {index.name}"
            )
        self._check_key(name, value, bytes_max)

    def put(self, item: Item) -> None:
        """Save a checked item in place of the item with the same key."""
        key = self.key_of(self.key_in(item))
        self.delete(key)
        self.items[key] = item
        for index in self._ordered:
            if index.partition in item and index.sort in item:
                partition = sort_key(item[index.partition])
                index.entries.setdefault(partition, {})[key] = None
                index.in_order.pop(partition, None)

    def delete(self, key: str) -> None:
        """Delete the item with this key, if there is one."""
        item = self.items.pop(key, None)
        if item is None:
            return
        for index in self._ordered:
            if index.partition in item and index.sort in item:
                partition = sort_key(item[index.partition])
                index.entries[partition].pop(key, None)
                index.in_order.pop(partition, None)

    def in_index(self, name: str, value: Value, *, backwards: bool, start: Item | None = None) -> Iterator[Item]:
        """Yield the items of an index with one value of the partition key, in the order of the sort key.

        Args:
            name: the index; "" for the table itself, which must have a sort key.
            value: the value of the partition key.
            backwards: the reverse order.
            start: keys of the item after which to begin; None for the first item.
        """
        index, partition = self.index(name), sort_key(value)
        if index.outdated is not None:
            yield from index.outdated.in_index(name, value, backwards=backwards, start=start)
            return
        if partition not in index.in_order:
            keys = index.entries.get(partition, ())
            index.in_order[partition] = sorted(self.position(index, self.items[key]) for key in keys)
        positions = index.in_order[partition]
        first, last = 0, len(positions)
        if start is not None:
            at = self.position(index, start)
            first, last = (0, bisect_left(positions, at)) if backwards else (bisect_right(positions, at), last)
        for number in range(last - 1, first - 1, -1) if backwards else range(first, last):
            yield self.items[positions[number][1]]

    def stop_index(self, name: str) -> None:
        """Let queries of an index answer as the index is now, whatever is written later, until `resume_index`."""
        self.indexes[name].outdated = deepcopy(self)

    def resume_index(self, name: str) -> None:
        """Let queries of an index show every write again."""
        self.indexes[name].outdated = None

    def position(self, index: Index, item: Item) -> tuple[Any, str]:
        """Return the position of an item, or of a start key, among the items with the same partition key."""
        return sort_key(item[index.sort]), self.key_of(self.key_in(item))

    def index(self, name: str) -> Index:
        """Return an index; for "" the order of the items by the sort key of the table.

        Raises:
            DynamoError: the table has none of this name, or it cannot be read yet.
            UnsupportedRequest: the table has no sort key.
        """
        if not name:
            if self.primary is None:
                raise UnsupportedRequest("the double has queries of indexes, and of tables with a sort key")
            return self.primary
        if name not in self.indexes:
            raise invalid(f"The table does not have the specified index: {name}")
        if self.indexes[name].is_backfilling:
            raise invalid(f"Cannot read from backfilling global secondary index: {name}")
        return self.indexes[name]

    def start_key(self, item: Item, index: Index | None) -> Item:
        """Return the parameter `LastEvaluatedKey` for a page that ends with the item."""
        names = set(self.key_attributes) | (set() if index is None else {index.partition, index.sort})
        return {name: item[name] for name in names}


def projected(item: Item, index: Index) -> Item:
    """Return the entry of an item in the index: its keys and the projected attributes."""
    return item if index.projected is None else {name: item[name] for name in item if name in index.projected}


def missing_table() -> DynamoError:
    """Return the error for a table that does not exist."""
    return DynamoError("ResourceNotFoundException", "Requested resource not found")
