"""Lines for the system's journal, which adds the time. What would repeat is said once, and again when it is over."""

from __future__ import annotations

import sys

LINE_MAX = 2_000
REMEMBERED_MAX = 4_096


class AgentLog:
    """Writes to standard error. `once` keeps quiet about a sentence that was said of the same thing."""

    def __init__(self) -> None:
        self._written: dict[str, str] = {}

    def write(self, text: str) -> None:
        """One line. A journal that cannot be written to is nobody's fault here, and stops nothing."""
        try:
            sys.stderr.write(" ".join(text.split())[:LINE_MAX] + "\n")
            sys.stderr.flush()
        except (OSError, ValueError):
            return

    def once(self, about: str, text: str) -> None:
        """Says `text` unless it was the last that was said `about` this."""
        if self._written.get(about) != text:
            if len(self._written) >= REMEMBERED_MAX:
                self._written.clear()
            self._written[about] = text
            self.write(text)

    def over(self, about: str, text: str = "") -> None:
        """Forgets what was said `about` this, and says `text` if there was anything to forget."""
        if self._written.pop(about, None) is not None and text:
            self.write(text)
