"""Listing of the fleet: the index `listing` of the instance table, which holds no histories.

Placement, comparisons and lists of instances read every instance, but of each record only a tenth. So each write of a
record also writes that tenth as JSON text, the attribute `listed`. Attributes that an update changes in place are
projected as they are. The partition key is a number of the instance, so no status is a hot key.

A record of release 0.1 has neither attribute until its next write. `complete_listing` adds them. Until all records have
them, lists are read from the index `by_status`. Only a table that is being upgraded from 0.1 has that index.
"""

from __future__ import annotations

import heapq
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from datetime import datetime, timedelta
from functools import cache
from itertools import islice
from math import ceil
from typing import Any

from botocore.exceptions import ClientError

from gpu_recovery.aws.dynamodb import Table
from gpu_recovery.aws.item_codec import ItemUnreadable, decode, encode, field_names, from_iso, readable, reading, to_iso
from gpu_recovery.core.instance.record import InstanceStatus, ListedInstance
from gpu_recovery.ports.values import InstancePage

LISTING = "listing"
"""Name of the index, and of the attribute that is its partition key. Instances that are gone lack the attribute."""
LISTED = "listed"
"""Attribute with the JSON text."""
WHOLE = "by_status"
"""Name of the index of whole records, which a deployment has with the setting `upgrade_from` only."""
SHARDS = 4
"""Partition keys of the index. Each costs one query of a list.

A partition key takes 1,000 write units a second. The entry of a healthy instance has about 600 bytes, one unit, and a
gang of 3,000 ranks that ends within a second changes 3,000 entries: 3,000 / 4 = 750.
"""
IN_PLACE = ("claims", "reserved_for", "past", "check")
"""Fields that updates change without the rest of the record. The index projects each of them."""
COMPLETE_AT = "complete_at"
"""Attribute of the mark: the time since which the index has every present instance."""
PROJECTED = (LISTED, *IN_PLACE, "schema", COMPLETE_AT)
"""Attributes in the index beside its keys."""
MARK = "#listing"
"""Key of the mark. Once complete, it is the first entry of the first partition key, so that it costs no read."""
OLD_RELEASE = timedelta(minutes=15)
"""Time after which no function of the older release writes any more, once records without the attributes were seen."""
COMPARED_EACH = timedelta(days=1)
"""Interval after which the indexes are compared again: an older release may have been deployed in between."""
ADDED_MAX = 2_000
"""Upper bound of the records that get the attributes in one round."""
_Reader = Callable[[Mapping[str, Any]], ListedInstance]
_Entries = Callable[[], list[dict[str, Any]]]
FIRST = " "
"""A key before every instance id."""
LAST = "~"
"""A character after every character of an instance id."""
PAGE_SPARE = 1.3
"""Instances that a page reads from each partition key, as a multiple of its share."""


@cache
def _defaults() -> dict[str, Any]:
    """Return the default of each field in the text. A field with its default is not written, MISSING fields are."""
    return {
        field.name: field.default_factory() if field.default_factory is not MISSING else field.default
        for field in fields(ListedInstance)
        if field.name not in (*IN_PLACE, "instance_id")
    }


def _names(*further: str) -> dict[str, str]:
    """Return the attributes of a whole record that a list needs, and further ones, by their names in an expression."""
    stored = ("container_inst_id", "schema", *field_names(ListedInstance), *further)
    return {f"#a{n}": name for n, name in enumerate(stored)}


def listing_keys(instance: ListedInstance) -> dict[str, Any]:
    """Return the attributes of an instance in the index; none if the instance is gone."""
    if instance.status is InstanceStatus.GONE:
        return {}
    changed = {
        name: encode(value)
        for name, default in _defaults().items()
        if (value := getattr(instance, name)) != default or default is MISSING
    }
    return {LISTING: shard_of(instance.instance_id), LISTED: json.dumps(changed, separators=(",", ":"))}


def shard_of(instance_id: str) -> int:
    """Return the partition key of an instance in the index."""
    return zlib.crc32(instance_id.encode()) % SHARDS


class ListingIncomplete(ItemUnreadable):
    """The index of whole records was removed before the listing had every instance."""


class InstanceIndex:
    """Reads lists of instances, and completes the index after an upgrade.

    table: the instance table.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self._is_complete = False

    def instances_in(
        self, statuses: Sequence[InstanceStatus], unreadable: list[Exception] | None
    ) -> tuple[ListedInstance, ...]:
        """Return every instance in one of `statuses`, all of them statuses of present instances.

        Args:
            statuses: the statuses, whose order is that of the answer.
            unreadable: collects the errors of records that cannot be read. Without it the first such error is raised.
        """
        by_status: dict[InstanceStatus, list[ListedInstance]] = {status: [] for status in statuses}
        for instance in self._all(unreadable):
            if instance.status in by_status:
                by_status[instance.status].append(instance)
        return tuple(instance for status in statuses for instance in by_status[status])

    def page(
        self, limit: int, cursor: str | None, unreadable: list[Exception] | None, prefix: str = ""
    ) -> InstancePage:
        """Return a page of at most `limit` present instances in the order of their ids.

        Args:
            limit: upper bound of instances in the page.
            cursor: id of the last instance of the page before; None for the first page.
            unreadable: collects the errors of records that cannot be read. They count as instances of the page.
            prefix: first characters of the ids. Only this range of the index is read.
        """
        after = cursor or FIRST
        items, read = self._items(
            lambda: list(islice(self._in_order(after, limit, prefix), limit + 2)),
            shows_mark=cursor is None and not prefix,
        )
        following = [
            item for item in items if item[self.table.key] > after and str(item[self.table.key]).startswith(prefix)
        ]
        last = str(following[limit - 1][self.table.key]) if len(following) > limit else None
        return InstancePage(tuple(readable(read, following[:limit], unreadable)), last)

    def _all(self, unreadable: list[Exception] | None) -> Iterator[ListedInstance]:
        items, read = self._items(lambda: [item for shard in range(SHARDS) for item in self._shard(shard)])
        return readable(read, sorted(items, key=lambda item: str(item[self.table.key])), unreadable)

    def _items(self, entries: _Entries, shows_mark: bool = True) -> tuple[list[dict[str, Any]], _Reader]:
        """Return entries of the index, or every whole record while the index lacks instances, and their reader.

        Args:
            entries: reads entries of the index.
            shows_mark: whether these include the mark, once the index is complete.

        Raises:
            ListingIncomplete: the index lacks instances, and the table has no index of whole records any more.
        """
        found = self._complete(entries, shows_mark)
        if found is not None:
            return found, _from_entry
        try:  # a record whose status changes between two queries is in both
            records = {item[self.table.key]: item for item in self._whole_records(_names())}
        except ClientError as error:
            if not _is_missing(error):
                raise
            self._raise_if_incomplete(self.table.get(MARK), error)
            return self._without_mark(entries()), _from_entry
        return [records[name] for name in sorted(records)], _from_record

    def _complete(self, read: _Entries, shows_mark: bool) -> list[dict[str, Any]] | None:
        """Return the entries that `read` reads from the index; None if the index is not marked as complete."""
        if not shows_mark and not self._is_complete:
            self._is_complete = COMPLETE_AT in (self.table.get(MARK) or {})
            if not self._is_complete:
                return None
        try:
            entries = read()
        except ClientError as error:
            if _is_unreadable(error):
                return None
            raise
        instances = self._without_mark(entries)
        self._is_complete = self._is_complete or len(instances) < len(entries)
        return instances if self._is_complete else None

    def _without_mark(self, entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [entry for entry in entries if entry[self.table.key] != MARK]

    def _raise_if_incomplete(self, mark: Mapping[str, Any] | None, error: ClientError) -> None:
        """Raise ListingIncomplete if the table needs its index of whole records. `error`: it has none.

        A table without a mark is of a new deployment, so no release without the listing has written to it.
        """
        if mark and COMPLETE_AT not in mark:
            raise ListingIncomplete(
                f"the index {WHOLE} of table {self.table.name} was removed before the index {LISTING} had every "
                "instance: deploy again with gpu-recovery:upgrade_from=0.1 (docs/upgrading.md)"
            ) from error

    def _shard(self, shard: int) -> Iterator[dict[str, Any]]:
        return self.table.query(LISTING, "#l = :l", {"#l": LISTING}, {":l": shard})

    def _in_order(self, after: str, limit: int, prefix: str) -> Iterator[dict[str, Any]]:
        """Yield the entries after the id `after` in the order of ids. Each partition key is read page by page.

        With a prefix, the entry of `after` itself is among them: the condition of a key takes one range.
        """
        names, values = {"#l": LISTING, "#k": self.table.key}, {":after": after}
        condition = "#l = :l AND #k > :after"
        if prefix:
            values = {":after": max(after, prefix), ":last": f"{prefix}{LAST}"}
            condition = "#l = :l AND #k BETWEEN :after AND :last"
        size = ceil(limit / SHARDS * PAGE_SPARE) + 1
        shards = [
            self.table.query(LISTING, condition, names, {**values, ":l": shard}, page=size) for shard in range(SHARDS)
        ]
        return heapq.merge(*shards, key=lambda item: str(item[self.table.key]))

    # -- until every record is in the index ----------------------------------------------------------------------------

    def _whole_records(self, names: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        """Yield attributes of every present record, from the index of whole records."""
        for status in InstanceStatus:
            if status is not InstanceStatus.GONE:
                shown = ", ".join(names)
                yield from self.table.query(
                    WHOLE, "#s = :s", {"#s": "status", **names}, {":s": status.value}, shown=shown
                )

    def complete(self, now: datetime) -> None:
        """Add the attributes to present records that lack them, and mark the index complete once none lacks them.

        An index that DynamoDB still builds is not marked. If records lacked the attributes, the mark waits until no
        function of the older release can write a record without them. A table without the index of whole records needs
        no comparison.

        Raises:
            ListingIncomplete: records lack the attributes, and the table has no index of whole records any more.
        """
        mark = self.table.get(MARK) or {}
        if COMPLETE_AT in mark and now - from_iso(mark[COMPLETE_AT]) < COMPARED_EACH:
            return
        try:
            missing, unreadable = self._add_missing()
        except ClientError as error:
            if not _is_missing(error):
                raise
            self._raise_if_incomplete(mark, error)
            missing, unreadable = 0, 0
        if (missing or unreadable) and COMPLETE_AT not in mark:
            self._save_mark({"seen_at": to_iso(now)})
        if missing or unreadable:  # the lists read whole records until an operator has mended the unreadable record
            return
        if "seen_at" in mark and now - from_iso(mark["seen_at"]) < OLD_RELEASE:
            return
        try:
            next(self._shard(0), None)
        except ClientError as error:
            if _is_unreadable(error):
                return
            raise
        self._save_mark({COMPLETE_AT: to_iso(now), LISTING: 0})

    def add(self, instance_ids: Sequence[str]) -> None:
        """Add at most ADDED_MAX of these instances to the index. Instances without a record are left out."""
        items = self.table.get_all(instance_ids[:ADDED_MAX]).values()
        records = (item for item in items if "status" in item and item["status"] != InstanceStatus.GONE)
        self._add(item for item in records if LISTING not in item)

    def _save_mark(self, values: Mapping[str, Any]) -> None:
        """Save the mark in place of the former one. The reconciler runs one round at a time."""
        self.table.put({self.table.key: MARK, **values}, "attribute_not_exists(revision)")

    def _add_missing(self) -> tuple[int, int]:
        """Add the attributes to at most ADDED_MAX records that lack them.

        Returns:
            The number of these records, and the number of records that cannot be read.
        """
        names = _names(LISTING, "revision")
        return self._add(islice((item for item in self._whole_records(names) if LISTING not in item), ADDED_MAX))

    def _add(self, items: Iterable[Mapping[str, Any]]) -> tuple[int, int]:
        """Add the attributes to the records that lack them. Return what `_add_missing` returns."""
        added, failures = 0, list[Exception]()
        for item in items:
            for instance in readable(_from_record, (item,), failures):
                keys = listing_keys(instance)
                change, unchanged = "SET #l = :l, #t = :t", "revision = :read AND attribute_not_exists(#l)"
                values = {":l": keys[LISTING], ":t": keys[LISTED], ":read": int(item["revision"])}
                self.table.update(instance.instance_id, change, unchanged, {"#l": LISTING, "#t": LISTED}, values)
                added += 1
        return added, len(failures)


def _from_entry(item: Mapping[str, Any]) -> ListedInstance:
    name = item["container_inst_id"]
    with reading(f"instance {name}", item, LISTED):
        changed = {key: item[key] for key in IN_PLACE if key in item}
        listed: ListedInstance = decode(ListedInstance, {"instance_id": name, **json.loads(item[LISTED]), **changed})
        return listed


def _from_record(item: Mapping[str, Any]) -> ListedInstance:
    with reading(f"instance {item['container_inst_id']}", item):
        listed: ListedInstance = decode(ListedInstance, item)
        return listed


def _is_unreadable(error: ClientError) -> bool:
    """Return whether DynamoDB refuses to read the index: it is still building the index, or has none of this name."""
    return _is_missing(error) or _refuses(error, "backfilling")


def _is_missing(error: ClientError) -> bool:
    """Return whether the table has no index of this name."""
    return _refuses(error, "specified index")


def _refuses(error: ClientError, words: str) -> bool:
    reason = error.response["Error"]
    return reason.get("Code") == "ValidationException" and words in reason.get("Message", "")
