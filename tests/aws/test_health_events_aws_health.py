"""What AWS Health plans with instances: retirements and maintenance, called off or not."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from gpu_recovery.aws.fields import EventUnreadable
from gpu_recovery.aws.health_events import notifications_of
from gpu_recovery.core.events import DepartureAnnounced
from gpu_recovery.core.health_signals import DepartureKind
from gpu_recovery.ecs_events.health import InstanceHealthEvent, SkippedNotification

from tests.aws.health_events import RETIREMENT, at, health, passed_over, published, the, warning
from tests.aws.records import NOW, A, B


def test_a_retirement_as_it_was_recorded() -> None:
    """Its times are those of e-mail; the ARN tells it from other plans."""
    (word,) = notifications_of(published(RETIREMENT), NOW)
    code = "AWS_EC2_PERSISTENT_INSTANCE_RETIREMENT_SCHEDULED"
    arn = f"arn:aws:health:us-east-1::event/EC2/{code}/{code}3d776ac7-512d-4a3b-8ea4-73c33993a906"
    assert word == InstanceHealthEvent(
        "i-00ddbf07ce6372082",
        DepartureAnnounced(
            at=at(2018, 11, 1, 22),
            kind=DepartureKind.RETIREMENT,
            source=arn,
            leaves_at=at(2018, 11, 1, 22),
            sentence=f"EC2 takes its host away from 2018-11-01 22:00 UTC on ({code})",
        ),
    )


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED", DepartureKind.RETIREMENT),
        ("AWS_EC2_INSTANCE_RETIREMENT_EXPEDITED", DepartureKind.RETIREMENT),
        ("AWS_EC2_PERSISTENT_INSTANCE_RETIREMENT_SCHEDULED", DepartureKind.RETIREMENT),
        ("AWS_EC2_PERSISTENT_INSTANCE_RETIREMENT_EXPEDITED", DepartureKind.RETIREMENT),
        ("AWS_EC2_INSTANCE_STOP_SCHEDULED", DepartureKind.RETIREMENT),
        ("AWS_EC2_INSTANCE_TERMINATION_SCHEDULED", DepartureKind.RETIREMENT),
        ("AWS_EC2_INSTANCE_REBOOT_MAINTENANCE_SCHEDULED", DepartureKind.MAINTENANCE),
        ("AWS_EC2_INSTANCE_REBOOT_FLEXIBLE_MAINTENANCE_SCHEDULED", DepartureKind.MAINTENANCE),
        ("AWS_EC2_SYSTEM_REBOOT_MAINTENANCE_SCHEDULED", DepartureKind.MAINTENANCE),
        ("AWS_EC2_INSTANCE_POWER_MAINTENANCE_SCHEDULED", DepartureKind.MAINTENANCE),
        ("AWS_EC2_INSTANCE_NETWORK_MAINTENANCE_SCHEDULED", DepartureKind.MAINTENANCE),
        ("AWS_EC2_DEDICATED_HOST_NETWORK_MAINTENANCE_SCHEDULED", DepartureKind.MAINTENANCE),
    ],
)
def test_every_plan_that_aws_makes_with_a_machine_has_its_kind(code: str, kind: DepartureKind) -> None:
    """A retirement is not cured by a reboot, maintenance passes."""
    announced = warning(health(code))
    assert announced.kind is kind
    assert code in announced.sentence


@pytest.mark.parametrize(
    "name",
    ["health_ec2_instance_store_degraded", "health_elb_api_issue_no_resources", "health_ec2_test_alert_no_entities"],
)
def test_an_event_that_plans_nothing_with_a_machine_is_passed_over(name: str) -> None:
    """An issue, another service, a test."""
    assert "plans nothing with a machine" in passed_over(published(name))


@pytest.mark.parametrize("service", ["RDS", "ec2", "", None])
def test_the_plans_of_other_services_are_none_of_ours(service: str | None) -> None:
    """Whatever their entities are called."""
    assert "plans nothing with a machine" in passed_over(health(service=service))


def test_the_subject_may_be_no_instance() -> None:
    """Hosts and capacity reservations among the entities leave the instance among them alone."""
    words = notifications_of(
        health("AWS_EC2_INSTANCE_STOP_SCHEDULED", "cr-01234567890abcdef", f" {A} ", "h-1", {}), NOW
    )
    assert [type(word) for word in words] == [
        SkippedNotification,
        InstanceHealthEvent,
        SkippedNotification,
        SkippedNotification,
    ]
    assert words[1] == InstanceHealthEvent(A, warning(health("AWS_EC2_INSTANCE_STOP_SCHEDULED")))


@pytest.mark.parametrize("entities", [None, []])
def test_a_plan_for_nobody_says_nothing(entities: Any) -> None:
    """Some events come without their entities."""
    assert notifications_of(health(affectedEntities=entities), NOW) == ()


def test_every_page_of_a_long_event_has_instances_of_its_own() -> None:
    """The same ARN, so the same plan; each page tells those that are on it."""
    pages = [
        health("AWS_EC2_INSTANCE_STOP_SCHEDULED", one, page=str(n), totalPages="2") for n, one in enumerate((A, B))
    ]
    told = [the(page) for page in pages]
    assert [word.instance_id for word in told if isinstance(word, InstanceHealthEvent)] == [A, B]
    assert {word.event.source for word in told if isinstance(word, InstanceHealthEvent)} == {"arn:1"}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("changes", "called_off"),
    [
        ({"statusCode": "open"}, False),
        ({"statusCode": "upcoming"}, False),
        ({}, False),
        ({"statusCode": "closed"}, True),
        ({"affectedEntities": [{"entityValue": A, "status": "RESOLVED"}]}, True),
        ({"affectedEntities": [{"entityValue": A, "status": "IMPAIRED"}]}, False),
    ],
)
def test_a_closed_event_calls_its_plan_off(changes: dict[str, Any], called_off: bool) -> None:
    """For all, or for the one whose part in it is resolved."""
    assert warning(health(**changes)).called_off is called_off


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Thu, 1 Nov 2018 22:00:00 GMT", at(2018, 11, 1, 22)),
        ("2018-11-01T22:00:00Z", at(2018, 11, 1, 22)),
        ("Thu, 1 Nov 2018 22:00:00 +0200", at(2018, 11, 1, 20)),
        ("Thu, 1 Nov 2018 22:00:00", at(2018, 11, 1, 22)),
        ("tomorrow", NOW),
        ("", NOW),
        (None, NOW),
        ("0001-01-01T00:00:00Z", NOW),
        ("9999-12-31T00:00:00Z", NOW),
        ("Fri, 31 Dec 9999 23:59:59 -1200", NOW),
        ("Sat, 99 Jun 2016 99:99:99 GMT", NOW),
    ],
)
def test_the_time_of_a_plan_has_two_forms(text: str | None, expected: datetime) -> None:
    """Anything else, or a time at the end of the calendar, counts as not given: what follows reckons with it."""
    announced = warning({**health(startTime=text), "time": "9999-01-01T00:00:00Z"})
    assert announced.leaves_at == expected


def test_a_plan_without_a_name_is_unreadable() -> None:
    """The ARN tells it from others: without it, nothing could ever call it off."""
    with pytest.raises(EventUnreadable, match=r"detail\.eventArn: is missing"):
        notifications_of(health(eventArn=" "), NOW)
