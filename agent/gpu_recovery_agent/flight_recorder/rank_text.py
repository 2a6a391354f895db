"""Ranks as a short text of ranges: `0-7,16-23` and, with a step, `0-1016/8`."""

from __future__ import annotations

from collections.abc import Iterable

TEXT_MAX = 1_000
"""Longest text that the server reads, in characters (docs/protocol.md)."""


def rank_text(ranks: Iterable[int]) -> str:
    """Return the ranges of these ranks; "" if there are none or their text is too long to be sent."""
    ordered = sorted(set(ranks))
    parts = []
    begin = 0
    while begin < len(ordered):
        end = begin + 1
        step = ordered[end] - ordered[begin] if end < len(ordered) else 1
        while end + 1 < len(ordered) and ordered[end + 1] - ordered[end] == step:
            end += 1
        if end >= len(ordered) or (end == begin + 1 and step != 1):
            parts.append(str(ordered[begin]))  # two ranks with a gap begin no range
            begin += 1
            continue
        parts.append(f"{ordered[begin]}-{ordered[end]}" + (f"/{step}" if step != 1 else ""))
        begin = end + 1
    text = ",".join(parts)
    return text if len(text) <= TEXT_MAX else ""
