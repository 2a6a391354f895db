"""What EC2 says of its instances: changes of state, interruptions, recommendations to leave."""

from __future__ import annotations

from typing import Any

import pytest
from gpu_recovery.aws.fields import EventUnreadable
from gpu_recovery.aws.health_events import notifications_of
from gpu_recovery.core.events import DepartureAnnounced
from gpu_recovery.core.health_signals import DepartureKind
from gpu_recovery.ecs_events.health import Ec2Hint, HealthNotification, InstanceHealthEvent

from tests.aws.health_events import at, passed_over, published, the, warning
from tests.aws.records import NOW, later

ID = "i-1234567890abcdef0"


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("ec2_state_change_running_ruler", Ec2Hint("i-000000aaaaaa00000", "it was running")),
        ("ec2_state_change_stopped_doc", Ec2Hint(ID, "it was stopped")),  # a blank before the id, no version
        ("ec2_state_change_terminated_doc", Ec2Hint(ID, "it was terminated", is_terminated=True)),  # blank
        ("ec2_state_change_terminated_powertools", Ec2Hint(ID, "it was terminated", is_terminated=True)),
        ("ec2_state_change_uppercase_RUNNING_pipes", Ec2Hint("i-0123456789", "it was running")),
    ],
)
def test_a_change_of_state_names_the_instance(name: str, word: HealthNotification) -> None:
    """Whatever is odd about its id, and in small letters."""
    assert the(published(name)) == word


@pytest.mark.parametrize("name", ["ec2_state_change_pending_nth", "ec2_state_change_pending_no_version"])
def test_a_pending_machine_is_passed_over(name: str) -> None:
    """It runs or it does not: either will be said."""
    assert "i-abcd1111 is pending" in passed_over(published(name))


def test_a_state_of_tomorrow_is_a_reason_to_look() -> None:
    """Nothing is concluded from the word itself."""
    event = published("ec2_state_change_running_ruler")
    event["detail"]["state"] = "hibernating"
    assert the(event) == Ec2Hint("i-000000aaaaaa00000", "it was hibernating")


@pytest.mark.parametrize("name", ["ec2_state_change_stopped_doc", "ec2_spot_interruption_terminate_karpenter"])
@pytest.mark.parametrize("value", [None, "", " ", "i-", "host-1", "i-XYZ", "cr-01234567890abcdef", f"{ID}; drop"])
def test_an_event_of_ec2_that_names_no_instance_is_unreadable(name: str, value: str | None) -> None:
    """Nobody would ever learn what it was about; the dead letters keep it."""
    event = {**published(name), "resources": []}
    event["detail"]["instance-id"] = value
    with pytest.raises(EventUnreadable, match=r"detail\.instance-id"):
        notifications_of(event, NOW)


def test_a_change_to_no_state_is_unreadable() -> None:
    """It is all that it says."""
    event = published("ec2_state_change_stopped_doc")
    del event["detail"]["state"]
    with pytest.raises(EventUnreadable, match=r"detail\.state: is missing"):
        notifications_of(event, NOW)


# -- interruptions and recommendations ---------------------------------------------------------------------------------


def test_a_spot_interruption_is_two_minutes_away() -> None:
    """From the time of the event; the ARN, which has a zone for its region, is not needed."""
    (word,) = notifications_of(published("ec2_spot_interruption_terminate_karpenter"), NOW)
    assert word == InstanceHealthEvent(
        "i-0123456789",
        DepartureAnnounced(
            at=at(2022, 8, 11, 14),
            kind=DepartureKind.INTERRUPTION,
            source="INTERRUPTION",
            leaves_at=at(2022, 8, 11, 14, 2),
            sentence="EC2 interrupts the Spot instance at 14:02:00 UTC",
        ),
    )


@pytest.mark.parametrize("time", ["yyyy-mm-ddThh:mm:ssZ", None, 7, "", "0000-00-00"])
def test_an_interruption_without_a_time_is_two_minutes_from_now(time: Any) -> None:
    """The documented sample has a placeholder."""
    event = {**published("ec2_spot_interruption_doc_placeholder_action"), "time": time}
    announced = warning(event)
    assert (announced.at, announced.leaves_at) == (NOW, later(120))


@pytest.mark.parametrize("time", ["9999-12-31T23:59:59Z", "2026-11-21T09:00:30Z"])
def test_nothing_has_happened_later_than_now(time: str) -> None:
    """Two clocks differ; and two minutes after the last second of the calendar there is no time."""
    assert warning({**published("ec2_spot_interruption_terminate_nth"), "time": time}).leaves_at == later(120)


def test_a_capacity_reservation_that_ends_is_an_interruption() -> None:
    """The same detail under another name."""
    event = published("ec2_spot_interruption_terminate_karpenter")
    event["detail-type"] = "EC2 Capacity Reservation Instance Interruption Warning"
    announced = warning(event)
    assert announced.kind is DepartureKind.INTERRUPTION
    assert announced.sentence == "EC2 interrupts its capacity reservation at 14:02:00 UTC"


def test_a_rebalance_recommendation_is_no_more_than_a_likelihood() -> None:
    """It names the time from which the machine is worth avoiding."""
    announced = warning(published("ec2_rebalance_recommendation_nth"))
    assert (announced.kind, announced.leaves_at) == (DepartureKind.REBALANCE, at(2020, 10, 26, 14, 14, 14))
    assert warning(published("ec2_rebalance_recommendation_doc")).leaves_at == NOW
