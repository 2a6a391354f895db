"""Interface of the verdict documents of health checks, for readers who show them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class VerdictDocuments(Protocol):
    """Reads whole verdict documents, to show them. Decisions are made from what `Actions.load_verdict` returns."""

    def load(self, check_id: str) -> Mapping[str, Any] | None:
        """Return the verdict document of a check; None if none is stored.

        Raises:
            VerdictUnreadable: the document is malformed, too large, or belongs to another check.
        """
