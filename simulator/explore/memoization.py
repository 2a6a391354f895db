"""Memoization of effects: an action that reads the same values has the same effects and is not carried out again.

Most events concern one record. Very many states have the same record and differ in other places. The effects of the
event in these states are known from the first of them. The first place that an action reads is always the same. Every
further place depends on the values read before. So the reads of an action form a tree.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from gpu_recovery.core.instance.record import InstanceStatus

from simulator.explore.read_tracking import Place
from simulator.explore.state_capture import Core, StateCapture

Changes = tuple[tuple[Place, int], ...]
"""Places that an action changed, each with the number of its new part."""


class RememberedEffects(NamedTuple):
    """Number of effects of an action, its changes, and its changes up to each kill, by number of the effect."""

    effects: int
    changes: Changes
    deaths: tuple[tuple[int, Changes], ...]


class Fork:
    """Inner node of the tree: the place that is read next, and the child for each part in this place."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.after: dict[int, Fork | RememberedEffects] = {}


class EffectMemory:
    """Trees of reads and effects, by action and time."""

    def __init__(self, copier: StateCapture) -> None:
        self.copier = copier
        self._roots: dict[tuple[object, ...], Fork | RememberedEffects] = {}

    def recall(self, key: tuple[object, ...], core: Core) -> RememberedEffects | None:
        """Return the effects of the action `key` in the state `core`, or None if they are unknown."""
        node, part = self._roots.get(key), self.copier.part
        while node is not None and not isinstance(node, RememberedEffects):
            node = node.after.get(part(core, node.place))
        return node

    def changes(self, places: Iterable[Place], before: Core, after: Core) -> Changes | None:
        """Return the changes from `before` to `after` in `places`.

        Returns:
            The changes. None if another place changed, or if an instance became available: the check of this return to
            work reads the state of the instance.
        """
        part = self.copier.part
        changed = tuple((place, part(after, place)) for place in places if part(before, place) != part(after, place))
        if self.copier.changed(before, changed) != after:
            return None
        instances_before = self.copier.records(before, "machines")
        instances_after = self.copier.records(after, "machines")
        available = InstanceStatus.AVAILABLE
        if any(
            instances_after[name].status is available and instances_before[name].status is not available
            for name in instances_after
        ):
            return None
        return changed

    def put(self, key: tuple[object, ...], core: Core, places: Iterable[Place], effects: RememberedEffects) -> None:
        """Save the effects of the action `key` in the state `core`.

        Args:
            key: action and time.
            core: the state before the action.
            places: the places that the action read, in this order.
            effects: the effects.

        Raises:
            LookupError: the action read the same values before, but then another place.
        """
        children: dict[object, Fork | RememberedEffects] = self._roots  # type: ignore[assignment]
        branch: object = key
        for place in places:
            node = children.setdefault(branch, Fork(place))
            if not isinstance(node, Fork) or node.place != place:
                raise LookupError(f"having read the same, it reads {place}, and before something else")
            children, branch = node.after, self.copier.part(core, place)  # type: ignore[assignment]
        children[branch] = effects
