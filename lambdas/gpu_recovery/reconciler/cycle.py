"""One round of the reconciler: the loop, and the fleet as the round sees it, which is listed once.

Each comparison asks for the instances, two for the line, and a listing of thousands is many pages. What the round
itself tells an instance is entered into what it sees; what others write meanwhile the next round sees, and until then
the fence of revisions keeps a decision from being taken on an old record.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from gpu_recovery.core import events
from gpu_recovery.core.instance.record import Instance, InstanceStatus
from gpu_recovery.core.queue.entry import Entry
from gpu_recovery.recovery import Recovery

PRESENT = tuple(status for status in InstanceStatus if status is not InstanceStatus.GONE)


class Cycle:
    """What the comparisons of one round have in common."""

    def __init__(self, recovery: Recovery) -> None:
        self.recovery = recovery
        self._present: dict[str, Instance] | None = None
        self._by_status: dict[InstanceStatus, list[Instance]] | None = None
        self._queue_entries: tuple[Entry, ...] | None = None
        self._unreadable: list[Exception] = []

    def instances_in(self, statuses: Sequence[InstanceStatus], unreadable: list[Exception]) -> tuple[Instance, ...]:
        """Every instance in `statuses`, which are of PRESENT, in their order.

        Why a record cannot be read is added to `unreadable` of whoever asks first: it is to be said once.
        """
        if self._present is None:
            listed = self.recovery.store.instances_in(PRESENT, unreadable)
            self._present = {one.instance_id: one for one in listed}
        if self._by_status is None:
            self._by_status = {status: [] for status in PRESENT}
            for one in self._present.values():
                self._by_status[one.status].append(one)
        return tuple(chain.from_iterable(self._by_status[status] for status in statuses))

    def listed(self, instance_id: str) -> Instance | None:
        """The instance as the round sees it; None if it has left, or nobody has asked for the instances yet."""
        return self._present.get(instance_id) if self._present is not None else None

    def queue_entries(self, unreadable: list[Exception]) -> tuple[Entry, ...]:
        """Everybody in line or with a place. Why somebody cannot be read is added to `unreadable`."""
        if self._queue_entries is None:
            self._queue_entries = self.recovery.store.load_queue(self._unreadable)
        unreadable += self._unreadable
        return self._queue_entries

    def handle(self, instance_id: str, event: events.InstanceEvent) -> None:
        """As `Recovery.handle`; the round sees what has become of the instance."""
        decision = self.recovery.handle(instance_id, event)
        if decision is None or self._present is None:
            return
        self._by_status = None
        if decision.record.status is InstanceStatus.GONE:
            self._present.pop(instance_id, None)
        else:
            self._present[instance_id] = decision.record
