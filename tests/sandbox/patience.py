"""How long a test waits for something that must happen.

The wait ends when the condition is true. So a long limit costs nothing in a good run, and a slow machine fails no test.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

PATIENCE_S = 300.0
"""Limit of one wait, in seconds: minutes more than any wait takes on two cores beside four busy processes."""
PAUSE_MAX_S = 0.5
"""Longest pause between two looks, in seconds. A look at a deployment takes 25 ms of processor time."""
PAUSE_GROWTH = 1.3
"""Factor from one pause to the next. After two seconds the pause is the longest."""


def wait_until(condition: Callable[[], Any], why: str | Callable[[], object] = "the condition stays false") -> Any:
    """Return the first true value of `condition()`.

    The pause between two looks is short at first, so that a short wait stays short.

    Args:
        condition: what is looked at.
        why: the message of the AssertionError that is raised when the limit has passed.
    """
    deadline, pause_s = time.monotonic() + PATIENCE_S, 0.02
    while not (value := condition()):
        assert time.monotonic() < deadline, why if isinstance(why, str) else why()
        time.sleep(pause_s)
        pause_s = min(PAUSE_GROWTH * pause_s, PAUSE_MAX_S)
    return value
