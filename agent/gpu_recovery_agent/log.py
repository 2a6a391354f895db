"""Writes log lines to standard error. systemd adds the time.

`AgentLog.once` writes a repeated line only once, until `over` clears its topic.
"""

from __future__ import annotations

import sys

LINE_MAX = 2_000
REMEMBERED_MAX = 4_096


class AgentLog:
    """Writes lines to standard error. `once` skips a text that was the last text on its topic."""

    def __init__(self) -> None:
        self._written: dict[str, str] = {}

    def write(self, text: str) -> None:
        """Write one line. An error of standard error is ignored: it must not stop the agent."""
        try:
            sys.stderr.write(" ".join(text.split())[:LINE_MAX] + "\n")
            sys.stderr.flush()
        except (OSError, ValueError):
            return

    def once(self, about: str, text: str) -> None:
        """Write `text` unless it was the last text written on the topic `about`."""
        if self._written.get(about) != text:
            if len(self._written) >= REMEMBERED_MAX:
                self._written.clear()
            self._written[about] = text
            self.write(text)

    def over(self, about: str, text: str = "") -> None:
        """Forget the last text on the topic `about`, and write `text` if there was such a text."""
        if self._written.pop(about, None) is not None and text:
            self.write(text)
