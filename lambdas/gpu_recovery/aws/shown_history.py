"""Event history for the function that shows it: a read that fails raises the error that the port declares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpu_recovery.aws.clients import as_unavailable
from gpu_recovery.core.event_history.streams import StoredItem
from gpu_recovery.core.lazy_dataclass import frozen_dataclass
from gpu_recovery.ports.event_history import HistoryReader

NAME = "the event history"


@frozen_dataclass()
class ShownHistory:
    """`ports.event_history.HistoryReader` on the reader `history`, with the errors that `as_unavailable` raises."""

    history: HistoryReader

    def read(
        self, stream: str, limit: int, *, after: str = "", before: str = "", newest_first: bool = False
    ) -> tuple[StoredItem, ...]:
        """Return at most `limit` items of a stream in the order of their positions."""
        with as_unavailable(NAME):
            return self.history.read(stream, limit, after=after, before=before, newest_first=newest_first)

    def load(self, stream: str, positions: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        """Return the attributes of these items by position; missing items are left out."""
        with as_unavailable(NAME):
            return self.history.load(stream, positions)
