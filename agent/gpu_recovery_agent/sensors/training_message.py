"""One line that a process of a training sent: an object of plain values, or nothing. Pure.

Anybody may have written it. What passes here can be written as JSON that the API reads, so that no line ever spoils the
report that takes it along.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

LINE_BYTES_MAX = 4_096
VALUES_MAX, KEY_MAX = 64, 64
SAFE_MAX = 2**53 - 1
_HALF = re.compile("[\ud800-\udfff]")
"""Half a character goes out as a question mark, so that two keys with one may become the same, given twice."""


def read(line: bytes) -> dict[str, Any] | None:
    """The object of plain values in a line; None for anything that could spoil the report that takes it along."""
    if len(line) > LINE_BYTES_MAX:
        return None
    try:
        found = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    if not _is_object(found) or not isinstance(found.get("type"), str):
        return None
    several = [value for value in found.values() if isinstance(value, list)]
    others = [value for value in found.values() if not isinstance(value, list)]
    is_plain = all(map(_is_plain, others)) and all(
        len(value) <= VALUES_MAX and all(_is_plain(one) or _is_flat(one) for one in value) for value in several
    )
    return found if is_plain else None


def _is_object(found: Any) -> bool:
    return isinstance(found, dict) and len(found) <= VALUES_MAX and all(map(_is_key, found))


def _is_key(key: str) -> bool:
    return len(key) <= KEY_MAX and _HALF.search(key) is None


def _is_flat(found: Any) -> bool:
    return _is_object(found) and all(map(_is_plain, found.values()))


def _is_plain(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, int):
        return abs(value) <= SAFE_MAX
    return value is None or isinstance(value, str)
