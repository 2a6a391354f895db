"""One round of the reconciler: the loop, and the fleet as the round sees it, which is listed once.

Each comparison asks for the instances, and a listing of thousands is many pages. What the round itself tells an
instance is entered into what it sees; what others write meanwhile the next round sees, and until then the fence of
revisions keeps a decision from being taken on an old record.
"""

from __future__ import annotations

from collections.abc import Sequence

from .core import events
from .core.instance.record import Instance, InstanceStatus
from .recovery import Recovery

PRESENT = tuple(status for status in InstanceStatus if status is not InstanceStatus.GONE)


class Round:
    """What the comparisons of one round have in common."""

    def __init__(self, recovery: Recovery) -> None:
        self.recovery = recovery
        self._present: dict[str, Instance] | None = None

    def instances_in(self, statuses: Sequence[InstanceStatus], unreadable: list[Exception]) -> tuple[Instance, ...]:
        """Every instance in `statuses`, which are of PRESENT, in their order.

        Why a record cannot be read is added to `unreadable` of whoever asks first: it is to be said once.
        """
        if self._present is None:
            listed = self.recovery.store.instances_in(PRESENT, unreadable)
            self._present = {one.instance_id: one for one in listed}
        found: dict[InstanceStatus, list[Instance]] = {status: [] for status in PRESENT}
        for one in self._present.values():
            found[one.status].append(one)
        return tuple(one for status in statuses for one in found[status])

    def tell(self, instance_id: str, event: events.InstanceEvent) -> None:
        """As `Recovery.tell`; the round sees what has become of the instance."""
        decision = self.recovery.tell(instance_id, event)
        if decision is None or self._present is None:
            return
        if decision.record.status is InstanceStatus.GONE:
            self._present.pop(instance_id, None)
        else:
            self._present[instance_id] = decision.record
