"""Listing of the whole fleet, kept for a moment: filtered and sorted pages of instances are taken from it."""

from __future__ import annotations

from datetime import datetime, timedelta

from gpu_recovery.core.instance.record import PRESENT, ListedInstance
from gpu_recovery.core.lazy_dataclass import frozen_dataclass
from gpu_recovery.job_api.snapshot_cache import SNAPSHOT_TTL
from gpu_recovery.recovery import Recovery

PAGES_TTL = timedelta(seconds=30)
"""Time for which further pages are taken from the listing of the first page."""


@frozen_dataclass()
class InstanceListing:
    """Every present instance at one time, and the errors of the records that cannot be read."""

    at: datetime
    instances: tuple[ListedInstance, ...]
    unreadable: tuple[Exception, ...]


class InstanceListings:
    """The latest listing, which lives as long as the function's process.

    A listing of 10,000 instances has 6 MB. Further pages, and tabs that poll their first page, do not read it again.
    """

    def __init__(self) -> None:
        self._kept: InstanceListing | None = None

    def read(self, recovery: Recovery, is_first_page: bool) -> InstanceListing:
        """Return a listing that is at most `SNAPSHOT_TTL` old; for a further page at most `PAGES_TTL`."""
        kept, now = self._kept, recovery.clock()
        if kept is None or now - kept.at >= (SNAPSHOT_TTL if is_first_page else PAGES_TTL):
            self._kept = kept = None  # two listings of a large fleet would need much memory
            failures: list[Exception] = []
            instances = recovery.store.instances_in(PRESENT, failures)
            self._kept = kept = InstanceListing(now, instances, tuple(failures))
        return kept

    def forget(self) -> None:
        """Forget the listing, after an order that changes an instance."""
        self._kept = None
