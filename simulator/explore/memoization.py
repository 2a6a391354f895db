"""What follows from an action depends on what it reads: where it would read the same, it is not carried out again.

Most events concern one record. In very many states that record is the same and something else is not; what the event
does there is known from the first of them. What is read first is always the same, what is read next depends on what
that was: so the readings of one action are a tree.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from gpu_recovery.core.instance.record import InstanceStatus

from simulator.explore.read_tracking import Place
from simulator.explore.state_capture import Core, StateCapture

Changes = tuple[tuple[Place, int], ...]
"""What is in some places afterwards."""


class RememberedEffects(NamedTuple):
    """How many effects it has, what it changes, and what it has changed where it died, by the number of the effect."""

    effects: int
    changes: Changes
    deaths: tuple[tuple[int, Changes], ...]


class Fork:
    """What is read next, and what comes after each thing that may be there."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.after: dict[int, Fork | RememberedEffects] = {}


class EffectMemory:
    """The trees, by the action and the time."""

    def __init__(self, copier: StateCapture) -> None:
        self.copier = copier
        self._roots: dict[tuple[object, ...], Fork | RememberedEffects] = {}

    def recall(self, key: tuple[object, ...], core: Core) -> RememberedEffects | None:
        """What is known of it in this state, if anything."""
        node, part = self._roots.get(key), self.copier.part
        while node is not None and not isinstance(node, RememberedEffects):
            node = node.after.get(part(core, node.place))
        return node

    def changes(self, places: Iterable[Place], before: Core, after: Core) -> Changes | None:
        """What has become of `before` in `places`; None if more has changed than that, or an instance works again:
        whether it may is asked of the machines."""
        part = self.copier.part
        found = tuple((one, part(after, one)) for one in places if part(before, one) != part(after, one))
        if self.copier.changed(before, found) != after:
            return None
        known, now = self.copier.records(before, "machines"), self.copier.records(after, "machines")
        works = InstanceStatus.AVAILABLE
        if any(now[name].status is works and known[name].status is not works for name in now):
            return None
        return found

    def put(self, key: tuple[object, ...], core: Core, places: Iterable[Place], what: RememberedEffects) -> None:
        """Remember what was carried out in this state, where `places` were read in this order."""
        into: dict[object, Fork | RememberedEffects] = self._roots  # type: ignore[assignment]
        at: object = key
        for place in places:
            node = into.setdefault(at, Fork(place))
            if not isinstance(node, Fork) or node.place != place:
                raise LookupError(f"having read the same, it reads {place}, and before something else")
            into, at = node.after, self.copier.part(core, place)  # type: ignore[assignment]
        into[at] = what
