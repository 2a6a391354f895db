"""Console snapshots in memory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gpu_recovery.core.console_snapshots import SnapshotName


class MemorySnapshots:
    """`ports.ConsoleSnapshots` in memory."""

    def __init__(self) -> None:
        self.documents: dict[SnapshotName, Mapping[str, Any]] = {}

    def save(self, name: SnapshotName, text: str) -> None:
        """Save the document under the name."""
        self.documents[name] = json.loads(text)

    def load(self, name: SnapshotName) -> Mapping[str, Any] | None:
        """Return the document that was saved last under the name; None if there is none."""
        return self.documents.get(name)
