"""Parts of the overview, each of which is read on its own and may be missing."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TypeVar

from gpu_recovery.job_api.dependencies import Dependencies
from gpu_recovery.ports.errors import StorageFailed, Unavailable

BEGIN_WITHIN = timedelta(seconds=5)
"""Time in which an overview begins to read its parts. A storage that does not answer costs 1.5 s for each part."""
Value = TypeVar("Value")


class OverviewPart(StrEnum):
    """A part of the overview that is read on its own, and that may be missing."""

    FLEET = "fleet"  # the reconciler's snapshot of the limits and totals
    QUEUE = "queue"  # the scheduler's snapshot
    INCIDENTS = "incidents"
    EVENTS = "events"
    WEEK = "week"
    DEAD_LETTERS = "dead_letters"


class OverviewParts:
    """Reads the parts of one overview. A part that cannot be read, or for which no time is left, is missing."""

    def __init__(self, dependencies: Dependencies) -> None:
        self._clock, self._log = dependencies.recovery.clock, dependencies.log
        self._began = self._clock()
        self.missing: list[OverviewPart] = []

    def read(self, part: OverviewPart, read: Callable[[datetime], Value]) -> Value | None:
        """Return what `read` returns for the present time; None if the part is missing.

        A storage that did not answer is logged as a warning, and a storage that refused the read as an error.
        """
        now = self._clock()
        try:
            if now - self._began > BEGIN_WITHIN:
                raise Unavailable(f"the other parts took {(now - self._began).total_seconds():.1f} s")
            return read(now)
        except Unavailable as error:
            self._log.warning(f"overview without {part}", exc_info=error)
        except StorageFailed as error:
            self._log.error(f"overview without {part}", exc_info=error)
        self.missing.append(part)
        return None
