"""A chunk of a driver's log; Ray itself returns a log only as a whole."""

from __future__ import annotations

from gpu_recovery.core.lazy_dataclass import frozen_dataclass

CHARACTERS_MAX = 500_000
"""Upper bound of the characters of a chunk. A function may answer with 6 MB, and a character may take six bytes there
and six more in the API's answer."""


@frozen_dataclass()
class LogChunk:
    """Some lines of a log without line ends; `end` is the number of log lines up to the last of them."""

    lines: tuple[str, ...]
    end: int


def log_chunk_of(text: str, most: int, after: int | None, *, grows: bool) -> LogChunk:
    """Return at most `most` lines of `text`: the newest, or those after the first `after` lines.

    Args:
        grows: the driver is alive. An unfinished last line is left for the next chunk.
    """
    lines = text.split("\n")
    if grows or not lines[-1]:
        lines.pop()
    start = max(0, len(lines) - most) if after is None else min(after, len(lines))
    chosen = lines[start : start + most]
    return _bounded(chosen, start, newest=after is None)


def _bounded(lines: list[str], start: int, *, newest: bool) -> LogChunk:
    """Return as many lines as an answer may hold, from the requested end. A single line that is too long is cut."""
    chosen: list[str] = []
    left = CHARACTERS_MAX
    for line in reversed(lines) if newest else lines:
        if chosen and len(line) > left:
            break
        chosen.append(line[:left])
        left -= len(chosen[-1])
    if newest:
        return LogChunk(tuple(reversed(chosen)), start + len(lines))
    return LogChunk(tuple(chosen), start + len(chosen))
