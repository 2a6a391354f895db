"""Parses one line from a training process: an object of plain values, or None. Pure.

Any process may have written the line. An accepted line can be encoded as JSON that the API reads, so no line makes the
report that contains it invalid.
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
"""Lone surrogates. Each is sent as a question mark, so two keys with a surrogate could become one key that occurs
twice.
"""


def read(line: bytes) -> dict[str, Any] | None:
    """Return the object of plain values in a line; None if the line could make the report invalid."""
    if len(line) > LINE_BYTES_MAX:
        return None
    try:
        content = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    if not _is_object(content) or not isinstance(content.get("type"), str):
        return None
    several = [value for value in content.values() if isinstance(value, list)]
    others = [value for value in content.values() if not isinstance(value, list)]
    is_plain = all(map(_is_plain, others)) and all(
        len(value) <= VALUES_MAX and all(_is_plain(item) or _is_flat(item) for item in value) for value in several
    )
    return content if is_plain else None


def _is_object(value: Any) -> bool:
    return isinstance(value, dict) and len(value) <= VALUES_MAX and all(map(_is_key, value))


def _is_key(key: str) -> bool:
    return len(key) <= KEY_MAX and _HALF.search(key) is None


def _is_flat(value: Any) -> bool:
    return _is_object(value) and all(map(_is_plain, value.values()))


def _is_plain(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, int):
        return abs(value) <= SAFE_MAX
    return value is None or isinstance(value, str)
