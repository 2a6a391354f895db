"""Items in parts: what a record holds of the ranks of an attempt, in one item for each PART_RANKS ranks.

The key of an item follows from the rank. The first item, the head, holds ranks 0 to 63. A gang of at most PART_RANKS
ranks has only the head. The head of a larger gang also has `parts`, the number of items.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any, Generic, TypeVar

from gpu_recovery.aws.dynamodb import CONFLICTS_MAX, Put, Table
from gpu_recovery.aws.item_codec import ItemUnreadable
from gpu_recovery.ports.errors import TryAgainSoon

Whole = TypeVar("Whole")
PART_RANKS = 64
"""Ranks of one item. The keys of stored facts follow from this number, so it never changes.

64 results of 200 bytes that come within a second, and the writes of the head of the largest gang, are fewer than the
1,000 write units of a partition key (`tests/aws/test_partition_limits.py`). 3,000 ranks are 47 items, which one
transaction creates and one batch reads.
"""
NOT_STORED = "attribute_not_exists(job_id_rank)"


def part_of(rank: int) -> int:
    """Return the part with the facts of a rank."""
    return rank // PART_RANKS


def parts_in(world: int) -> int:
    """Return the number of parts of a gang with so many ranks."""
    return max(1, ceil(world / PART_RANKS))


def part_ranks(part: int, world: int) -> range:
    """Return the ranks of a part."""
    return range(part * PART_RANKS, min((part + 1) * PART_RANKS, world))


def create(jobs: Table, items: Sequence[Mapping[str, Any]]) -> bool:
    """Write the items of an attempt unless they exist, all together or none. Return whether they were written.

    Args:
        jobs: the job table.
        items: the items with their keys; the first is the head.

    Raises:
        TryAgainSoon: DynamoDB throttled the write, or other functions held the items at every try.
    """
    head = items[0]["job_id_rank"]
    for _ in range(CONFLICTS_MAX):
        # A conflict is a function that begins the same attempt: the items exist, or this function tries again.
        if jobs.put_all([Put(item, NOT_STORED) for item in items]):
            return True
        if len(items) == 1 or jobs.get(head) is not None:
            return False
    raise TryAgainSoon(f"dynamodb: other functions held {head} {CONFLICTS_MAX} times")


class ItemsInParts(ABC, Generic[Whole]):
    """The items of one kind in the job table.

    jobs: the job table.
    name: what the items are, as errors name it.
    """

    name: str

    def __init__(self, jobs: Table) -> None:
        self.jobs = jobs

    @staticmethod
    @abstractmethod
    def key(job_id: str, attempt: int, part: int = 0) -> str:
        """Return the key of an item of an attempt; part 0 is the head."""

    @abstractmethod
    def whole(self, head: Mapping[str, Any]) -> Whole:
        """Return what all items of an attempt hold together, from the head."""

    def load(self, job_id: str, attempt: int) -> Whole | None:
        """Return what all items of an attempt hold, consistently read; None if there is no head."""
        head = self.jobs.get(self.key(job_id, attempt))
        return self.whole(head) if head is not None else None

    def load_all(self, job_id: str, attempts: Sequence[int], items: Mapping[str, Any]) -> dict[int, Whole]:
        """Return what the items of each attempt hold, for the attempts with a head.

        Args:
            job_id: the job.
            attempts: the numbers of the attempts.
            items: items that were read, the heads among them, by key.
        """
        heads = {number: items.get(self.key(job_id, number)) for number in attempts}
        return {number: self.whole(head) for number, head in heads.items() if head is not None}

    def parts(self, head: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """Return the head and the other items of its attempt, which are read together.

        Raises:
            ItemUnreadable: an item is missing.
        """
        keys = [self.key(head["job_id"], int(head["attempt"]), part) for part in range(1, int(head.get("parts", 1)))]
        items = self.jobs.get_all(keys) if keys else {}
        missing = [key for key in keys if key not in items]
        if missing:
            raise ItemUnreadable(f"{self.name} {head['job_id_rank']}: {missing[0]} is missing")
        return [head, *(items[key] for key in keys)]
