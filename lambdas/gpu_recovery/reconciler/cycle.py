"""One reconcile cycle: the loop, and a listing of the fleet that all resyncs share.

Every resync needs the instances and two need the queue, and a listing of thousands takes many pages. So the cycle lists
them once. Events that the cycle itself delivers update its listing. Changes by others appear in the next cycle; until
then the revision fence rejects a decision on an outdated record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

from gpu_recovery.core import events
from gpu_recovery.core.fleet import Fleet
from gpu_recovery.core.instance.record import PRESENT, InstanceStatus, ListedInstance
from gpu_recovery.core.queue.entry import Entry
from gpu_recovery.recovery import Recovery


class Cycle:
    """The listing that the resyncs of one reconcile cycle share."""

    def __init__(self, recovery: Recovery) -> None:
        self.recovery = recovery
        self._present: dict[str, ListedInstance] | None = None
        self._by_status: dict[InstanceStatus, list[ListedInstance]] | None = None
        self._queue_entries: tuple[Entry, ...] | None = None
        self._unreadable: list[Exception] = []
        self.fleet: Fleet | None = None
        """The fleet limits as a comparison of this cycle last saw them; None before that."""
        self.utilisation: Mapping[str, str] = {}
        """The utilisation of the GPUs by instance, of heartbeats that are not too old. For the console alone."""

    @property
    def present(self) -> tuple[ListedInstance, ...] | None:
        """Every instance of the listing; None before the first call of `instances_in`. It reads nothing."""
        return tuple(self._present.values()) if self._present is not None else None

    def instances_in(
        self, statuses: Sequence[InstanceStatus], unreadable: list[Exception]
    ) -> tuple[ListedInstance, ...]:
        """Return every instance in `statuses`, in the order of `statuses`.

        Args:
            statuses: statuses out of `PRESENT`.
            unreadable: receives the errors of unreadable records, at the first call of the cycle only: each is reported
                once.
        """
        if self._present is None:
            listed = self.recovery.store.instances_in(PRESENT, unreadable)
            self._present = {instance.instance_id: instance for instance in listed}
        if self._by_status is None:
            self._by_status = {status: [] for status in PRESENT}
            for instance in self._present.values():
                self._by_status[instance.status].append(instance)
        return tuple(chain.from_iterable(self._by_status[status] for status in statuses))

    def listed(self, instance_id: str) -> ListedInstance | None:
        """Return the instance as the cycle sees it; None if it is gone, or before the first call of `instances_in`."""
        return self._present.get(instance_id) if self._present is not None else None

    def queue_entries(self, unreadable: list[Exception]) -> tuple[Entry, ...]:
        """Return the entries of all queued and placed jobs, and add read errors to `unreadable`."""
        if self._queue_entries is None:
            self._queue_entries = self.recovery.store.load_queue(self._unreadable)
        unreadable += self._unreadable
        return self._queue_entries

    def handle(self, instance_id: str, event: events.InstanceEvent) -> None:
        """Deliver an event as `Recovery.handle` does, and update the listing with the new record."""
        decision = self.recovery.handle(instance_id, event)
        if decision is not None and decision.fleet is not None:
            self.fleet = decision.fleet
        if decision is None or self._present is None:
            return
        self._by_status = None
        if decision.record.status is InstanceStatus.GONE:
            self._present.pop(instance_id, None)
        else:
            self._present[instance_id] = decision.record
