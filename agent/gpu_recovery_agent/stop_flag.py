"""A flag that a signal handler may set while the same thread waits for it.

`threading.Event` is not fit for that. `wait` holds the lock of the event for moments, and a handler that calls `set` in
such a moment waits for ever for the lock that its own thread holds.
"""

from __future__ import annotations

import os
import select


class StopFlag:
    """A flag that is set once. A pipe wakes the thread that waits."""

    def __init__(self) -> None:
        self._is_set = False
        self._reader, self._writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def is_set(self) -> bool:
        """Return whether the flag is set."""
        return self._is_set

    def set(self) -> None:
        """Set the flag. A signal handler may call this at any moment."""
        if not self._is_set:
            self._is_set = True
            os.write(self._writer, b"\n")

    def wait(self, seconds: float) -> bool:
        """Wait until the flag is set, for at most `seconds`. Return whether it is set."""
        select.select([self._reader], [], [], seconds)
        return self._is_set
