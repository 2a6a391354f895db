"""A heartbeat that this release cannot read, among others that it can."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from gpu_recovery.aws.item_codec import ItemUnreadable
from gpu_recovery.core.heartbeat import Heartbeat

from tests.recovery.heartbeat_world import IDS, Scene


def test_one_heartbeat_that_nobody_can_read_keeps_no_other_silence_from_being_told(scene: Scene) -> None:
    """What a newer release wrote is raised when the round is over."""
    scene.beats()
    read = scene.store.load_heartbeats

    def beats(instance_ids: Sequence[str], unreadable: list[Exception] | None = None) -> Mapping[str, Heartbeat]:
        found = dict(read(instance_ids))
        if found.pop(IDS[1], None) is not None and unreadable is not None:
            unreadable.append(ItemUnreadable("heartbeat"))
        return found

    scene.store.load_heartbeats = beats  # type: ignore[method-assign]
    scene.passes(200)
    scene.beats(2, 3)
    with pytest.raises(ExceptionGroup, match="not every heartbeat could be compared"):
        scene.sweep()
    assert scene.instance(0).silent_since is not None
