"""Capacity meter of the DynamoDB double: read and write units by table, index and partition key.

Source: "DynamoDB read and write operations" and "Using Global Secondary Indexes" in the developer guide. Units follow
from the sizes of whole items, or of whole index entries, whatever a projection expression leaves out of the answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import ceil
from typing import NamedTuple

from simulator.dynamodb.attribute_values import Item, size_of, sort_key
from simulator.dynamodb.table import DynamoTable, Index, projected

READ_BYTES, WRITE_BYTES = 4_096, 1_024
"""Bytes of one read unit, strongly consistent, and of one write unit."""


class PartitionKey(NamedTuple):
    """A partition key of a table (index "") or of an index, with its value."""

    table: str
    index_name: str
    value: object


class CapacityMeter:
    """Units that were read and written since the meter was made or cleared.

    Attributes:
        reads: read units by partition key.
        writes: write units by partition key.
        bytes_read: bytes of the items and index entries that were read.
    """

    def __init__(self) -> None:
        self.reads: Counter[PartitionKey] = Counter()
        self.writes: Counter[PartitionKey] = Counter()
        self.bytes_read = 0

    def clear(self) -> None:
        """Begin to count again."""
        self.reads.clear()
        self.writes.clear()
        self.bytes_read = 0

    def read_item(self, table: DynamoTable, key: str, item: Item | None, consistent: bool) -> None:
        """Count the read of one item. A missing item costs as much as the smallest."""
        size = size_of(item) if item is not None else 0
        self._read(PartitionKey(table.name, "", key), size, consistent)

    def read_page(self, table: DynamoTable, index: Index, value: object, entries: Iterable[Item]) -> None:
        """Count a page of a query. Queries of a global index are eventually consistent, and their sizes are added."""
        self._read(PartitionKey(table.name, index.name, value), sum(map(size_of, entries)), consistent=False)

    def _read(self, partition: PartitionKey, size: int, consistent: bool) -> None:
        self.bytes_read += size
        # Halves are exact in binary, so the units may be compared with ==.
        self.reads[partition] += max(1, ceil(size / READ_BYTES)) * (1 if consistent else 0.5)  # type: ignore[assignment]

    def wrote(self, table: DynamoTable, key: str, old: Item | None, new: Item | None, *, transaction: bool) -> None:
        """Count one write: of the item, and of each index entry that it changes.

        An index entry with a changed key is deleted and put. An entry whose projected attributes stay costs nothing.
        """
        size = max(size_of(old) if old is not None else 0, size_of(new) if new is not None else 0)
        self.writes[PartitionKey(table.name, "", key)] += _write_units(size) * (2 if transaction else 1)
        for index in table.indexes.values():
            before, after = _entry(old, index), _entry(new, index)
            if before == after:
                continue
            if before is not None and after is not None and _keys(before, index) == _keys(after, index):
                self._write_entry(table, index, after, max(size_of(before), size_of(after)))
                continue
            for entry in filter(None, (before, after)):
                self._write_entry(table, index, entry, size_of(entry))

    def _write_entry(self, table: DynamoTable, index: Index, entry: Item, size: int) -> None:
        partition = PartitionKey(table.name, index.name, sort_key(entry[index.partition]))
        self.writes[partition] += _write_units(size)


def _write_units(size: int) -> int:
    return max(1, ceil(size / WRITE_BYTES))


def _entry(item: Item | None, index: Index) -> Item | None:
    """Return the entry of an item in an index; None if it has none."""
    if item is None or index.partition not in item or index.sort not in item:
        return None
    return projected(item, index)


def _keys(entry: Item, index: Index) -> tuple[object, object]:
    return entry[index.partition], entry[index.sort]
