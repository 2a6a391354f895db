"""A piece of a driver's log, which Ray hands out whole or not at all."""

from __future__ import annotations

from dataclasses import dataclass

CHARACTERS_MAX = 500_000
"""A function may answer with 6 MB, and a character may take six bytes there and six more in the API's answer."""


@dataclass(frozen=True, slots=True)
class LogChunk:
    """Some lines of a log, without their ends; `end` counts the lines of the log up to the last of these."""

    lines: tuple[str, ...]
    end: int


def log_chunk_of(text: str, most: int, after: int | None, *, grows: bool) -> LogChunk:
    """At most `most` lines of `text`: the newest, or those that follow the first `after`.

    grows: the driver lives. What it has written of a line that is not ended yet is left for the next piece.
    """
    lines = text.split("\n")
    if grows or not lines[-1]:
        lines.pop()
    start = max(0, len(lines) - most) if after is None else min(after, len(lines))
    chosen = lines[start : start + most]
    return _bounded(chosen, start, newest=after is None)


def _bounded(lines: list[str], start: int, *, newest: bool) -> LogChunk:
    """As many of the lines as may be answered, from the end that is wanted; one that is too long by itself is cut."""
    kept: list[str] = []
    left = CHARACTERS_MAX
    for line in reversed(lines) if newest else lines:
        if kept and len(line) > left:
            break
        kept.append(line[:left])
        left -= len(kept[-1])
    if newest:
        return LogChunk(tuple(reversed(kept)), start + len(lines))
    return LogChunk(tuple(kept), start + len(kept))
