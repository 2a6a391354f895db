"""The event history in memory: `ports.event_history.EventHistory` with the results that DynamoDB gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from gpu_recovery.core.event_history.streams import CLAIMED_UNTIL, HistoryItem, StoredItem
from gpu_recovery.core.published_events import utc_text

from simulator.dynamodb.limits import ITEM_BYTES_MAX


class MemoryEventHistory:
    """Implements `ports.event_history.EventHistory`, which documents arguments and results.

    Attributes:
        streams: attributes by position, by stream.
    """

    def __init__(self) -> None:
        self.streams: dict[str, dict[str, dict[str, str]]] = {}

    def merge(self, item: HistoryItem) -> Mapping[str, str] | None:
        """Add the attributes to the stored item, and return all of them; None if the item is full."""
        stream = self.streams.setdefault(item.stream, {})
        merged = stream.get(item.position, {}) | dict(item.attributes)
        if sum(len(name.encode()) + len(value.encode()) for name, value in merged.items()) > ITEM_BYTES_MAX:
            return None
        stream[item.position] = merged
        return dict(merged)

    def remove(self, stream: str, position: str, expected: Mapping[str, str] | None = None) -> None:
        """Delete an item, if it has the expected attributes."""
        items = self.streams.get(stream, {})
        if (expected or {}).items() <= items.get(position, {}).items():
            items.pop(position, None)

    def load_now(self, stream: str, position: str) -> Mapping[str, str]:
        """Return the attributes of an item."""
        return dict(self.streams.get(stream, {}).get(position, {}))

    def claim(self, stream: str, position: str, now: datetime, until: datetime) -> bool:
        """Claim an item, and return whether it was free."""
        items = self.streams.setdefault(stream, {})
        if position in items and items[position][CLAIMED_UNTIL] > utc_text(now):
            return False
        items[position] = {CLAIMED_UNTIL: utc_text(until)}
        return True

    def read(
        self, stream: str, limit: int, *, after: str = "", before: str = "", newest_first: bool = False
    ) -> tuple[StoredItem, ...]:
        """Return at most `limit` items of a stream in the order of their positions."""
        items = self.streams.get(stream, {})
        positions = sorted(items, reverse=newest_first)
        kept = [name for name in positions if name > after and (not before or name < before)]
        return tuple(StoredItem(name, dict(items[name])) for name in kept[:limit])

    def load(self, stream: str, positions: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        """Return the attributes of these items by position; missing items are left out."""
        items = self.streams.get(stream, {})
        return {name: dict(items[name]) for name in positions if name in items}
