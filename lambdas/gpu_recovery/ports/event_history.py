"""Interface of the table of the event history. `aws/` implements it on DynamoDB, `simulator/` in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from gpu_recovery.core.event_history.streams import HistoryItem, StoredItem


class HistoryReader(Protocol):
    """Reads of the event history. The reader of the job API raises Unavailable and StorageFailed.

    Unavailable: no answer. StorageFailed: a refused read.
    """

    def read(
        self, stream: str, limit: int, *, after: str = "", before: str = "", newest_first: bool = False
    ) -> tuple[StoredItem, ...]:
        """Return at most `limit` items of a stream in the order of their positions.

        Args:
            stream: the stream.
            limit: upper bound of the items.
            after: only items with a greater position; "" for no bound.
            before: only items with a smaller position; "" for no bound.
            newest_first: begin with the greatest position.
        """

    def load(self, stream: str, positions: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        """Return the attributes of these items by position; missing items are left out."""


class EventHistory(HistoryReader, Protocol):
    """Reads and writes of the event history. Every write may be repeated, in any order with others."""

    def merge(self, item: HistoryItem) -> Mapping[str, str] | None:
        """Add the attributes to the stored item, which is created if it is missing.

        Returns:
            All attributes of the item afterwards. None, without a write, if the item would be larger than an item may
            be.
        """

    def remove(self, stream: str, position: str, expected: Mapping[str, str] | None = None) -> None:
        """Delete an item, if it has the expected attributes. It may be missing.

        Args:
            stream: the stream.
            position: the position.
            expected: attributes that the stored item must have; None: delete the item as it is.
        """

    def load_now(self, stream: str, position: str) -> Mapping[str, str]:
        """Return the attributes of an item, consistently read; none if the item is missing."""

    def claim(self, stream: str, position: str, now: datetime, until: datetime) -> bool:
        """Claim an item, which is created if it is missing. At any time a claim has at most one holder.

        Args:
            stream: the stream.
            position: the position.
            now: the present time.
            until: end of the claim.

        Returns:
            False, without a write, if the item is claimed until a later time than `now`.
        """
