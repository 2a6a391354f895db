"""Ranges of ranks as text: `0-7,16-23` and, with a step, `0-1016/8`.

A process group may have tens of thousands of ranks. Its text is short, because most groups are ranges with a step. The
ranges are never expanded as a whole, so a long range costs nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain

from gpu_recovery.core.lazy_dataclass import frozen_dataclass

TEXT_MAX = 1_000
"""Upper bound of the characters of a text. A sender leaves a longer text out, and the members are then unknown."""
RANK_MAX = 1_000_000
_RANGE = r"\d{1,7}(?:-\d{1,7}(?:/\d{1,7})?)?"
_TEXT = rf"{_RANGE}(?:,{_RANGE})*"
_PART = r"(\d+)(?:-(\d+)(?:/(\d+))?)?"


@frozen_dataclass()
class RankRanges:
    """Ranks as ranges in the order of the text."""

    ranges: tuple[range, ...] = ()

    def __contains__(self, rank: object) -> bool:
        return any(rank in part for part in self.ranges)

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable(self.ranges)

    def __len__(self) -> int:
        return sum(map(len, self.ranges))


@lru_cache(maxsize=4_096)
def parsed(text: str) -> RankRanges | None:
    """Return the ranges of a text; None if the text is no list of ranges or is too long."""
    if not text:
        return RankRanges()
    if len(text) > TEXT_MAX or not re.fullmatch(_TEXT, text, re.ASCII):
        return None
    parts = []
    for first, last, step in re.findall(_PART, text, re.ASCII):
        begin, end, by = int(first), int(last or first), int(step or 1)
        if not begin <= end <= RANK_MAX or by < 1:
            return None
        parts.append(range(begin, end + 1, by))
    return RankRanges(tuple(parts))


def of_ranks(ranks: Iterable[int]) -> RankRanges:
    """Return single ranks as ranges."""
    return RankRanges(tuple(range(rank, rank + 1) for rank in sorted(set(ranks))))
