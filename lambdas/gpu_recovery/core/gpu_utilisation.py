"""Utilisation of the GPUs of an instance: its text in a heartbeat, and its part of the fleet map.

The web console shows it. Hang detection reads whether all GPUs are idle.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

GPUS_MAX = 32
"""GPUs of a heartbeat at most."""
MAP_GPUS = 8
"""GPUs of an instance in the fleet map. Further GPUs are left out."""
MAP_STEP = 10
"""Percent between two values in the fleet map.

Each value is rounded up, so only an idle GPU is 0. Exact percentages would make the answer half as large again.
"""
UNKNOWN = 255
"""Byte of a GPU without a known utilisation."""
_PERCENT_MAX = 100


def utilisation_text(reported: Any) -> str:
    """Return the text of a heartbeat: two hexadecimal digits for each GPU; "" if no utilisation is known.

    Args:
        reported: the list of percentages as an agent sent it. A value of another form counts as unknown.
    """
    if not isinstance(reported, Sequence) or isinstance(reported, str):
        return ""
    values = bytes(_percent(value) for value in reported[:GPUS_MAX])
    return values.hex() if any(value != UNKNOWN for value in values) else ""


def all_idle(text: str) -> bool:
    """Return whether the utilisation of every GPU is known, and is zero."""
    return bool(text) and not text.strip("0")


def map_part(text: str) -> bytes:
    """Return the `MAP_GPUS` bytes of an instance in the fleet map: percent in steps of `MAP_STEP`, or `UNKNOWN`."""
    try:
        values = bytes.fromhex(text)[:MAP_GPUS]
    except ValueError:  # another release wrote it in another form
        values = b""
    return values.translate(_STEPS).ljust(MAP_GPUS, bytes([UNKNOWN]))


def _percent(value: Any) -> int:
    is_percent = type(value) in (int, float) and 0 <= value <= _PERCENT_MAX  # a comparison with NaN is false
    return round(value) if is_percent else UNKNOWN


_STEPS = bytes(-(-value // MAP_STEP) * MAP_STEP if value <= _PERCENT_MAX else UNKNOWN for value in range(256))
