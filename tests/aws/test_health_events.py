"""Which events are about the health of instances, and which of them cannot be read."""

from __future__ import annotations

from typing import Any

import pytest
from gpu_recovery.aws.fields import EventUnreadable
from gpu_recovery.aws.health_events import is_health_event, notifications_of
from gpu_recovery.ecs_events.health import InstanceHealthEvent

from tests.aws.health_events import EVENTS, PUBLISHED, published
from tests.aws.records import NOW

OTHERS = sorted({path.stem for path in EVENTS.glob("*.json")} - set(PUBLISHED))


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_published_event_of_a_watcher_is_understood(name: str) -> None:
    """None raises; the times that come out of them are aware and not in the future."""
    event = published(name)
    assert is_health_event(event)
    for word in notifications_of(event, NOW):
        if isinstance(word, InstanceHealthEvent):
            assert word.instance_id.startswith("i-")
            assert word.event.at <= NOW


@pytest.mark.parametrize("name", [name for name in OTHERS if not name.startswith("detail_")])
def test_other_events_are_not_ours_to_read(name: str) -> None:
    """Tasks, container instances, services, Auto Scaling."""
    assert not is_health_event(published(name))


@pytest.mark.parametrize("kind", [None, "", ["EC2 Instance State-change Notification"], {"a": 1}, 7, "EC2 " * 4096])
def test_a_detail_type_that_is_none_is_not_ours(kind: Any) -> None:
    """Over-long, absent, or no text at all."""
    assert not is_health_event({"detail-type": kind})
    assert not is_health_event({})


@pytest.mark.parametrize("event", [None, [], "text", 7])
def test_what_is_no_object_is_unreadable(event: Any) -> None:
    """Whatever got into the queue."""
    with pytest.raises(EventUnreadable):
        is_health_event(event)


@pytest.mark.parametrize("detail", [None, [], "text", 7])
@pytest.mark.parametrize("name", ["ec2_state_change_running_ruler", "health_odcr_underutilization"])
def test_an_event_without_a_detail_is_unreadable(name: str, detail: Any) -> None:
    """The error says what is missing."""
    with pytest.raises(EventUnreadable, match="detail"):
        notifications_of({**published(name), "detail": detail}, NOW)
