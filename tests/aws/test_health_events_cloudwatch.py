"""Alarms of CloudWatch on the status checks of an instance; all other alarms are passed over."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from gpu_recovery.core.events import HealthReported
from gpu_recovery.core.health_signals import HealthKind, HealthStatus
from gpu_recovery.ecs_events.health import InstanceHealthEvent

from tests.aws.health_events import PUBLISHED, alarm, at, passed_over, published, the, warning
from tests.aws.records import NOW, A

SINCE = at(2019, 10, 2, 17, 4, 40) + timedelta(milliseconds=989)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("StatusCheckFailed_System", HealthKind.SYSTEM_STATUS),
        ("StatusCheckFailed_Instance", HealthKind.INSTANCE_STATUS),
        ("StatusCheckFailed", HealthKind.INSTANCE_STATUS),
    ],
)
def test_an_alarm_on_a_status_check_is_a_word_about_the_instance(name: str, kind: HealthKind) -> None:
    """Since the alarm came to be in its state."""
    assert the(alarm(name)) == InstanceHealthEvent(
        A,
        HealthReported(
            at=at(2019, 10, 2, 17, 4, 40),
            kind=kind,
            status=HealthStatus.IMPAIRED,
            since=SINCE,
            sentence=f"the alarm 'ServerCpuTooHigh' on {name} is ALARM",
        ),
    )


@pytest.mark.parametrize(
    ("value", "status"),
    [
        ("ALARM", HealthStatus.IMPAIRED),
        ("OK", HealthStatus.OK),
        ("INSUFFICIENT_DATA", HealthStatus.INSUFFICIENT_DATA),
    ],
)
def test_the_state_of_the_alarm_is_the_status(value: str, status: HealthStatus) -> None:
    """Too little data is neither well nor impaired."""
    assert warning(alarm("StatusCheckFailed_System", value=value)).status is status


@pytest.mark.parametrize(
    "event",
    [
        *(published(name) for name in PUBLISHED if name.startswith("cloudwatch_alarm")),
        alarm("CPUUtilization"),
        alarm("StatusCheckFailed_System", namespace="Mine"),
        alarm("StatusCheckFailed_System", dimensions={}),
        alarm("StatusCheckFailed_System", dimensions=None),
        alarm("StatusCheckFailed_System", dimensions={"InstanceId": "mi-1"}),
        alarm("StatusCheckFailed_System", value="DREAMING"),
        alarm("StatusCheckFailed_System", value=None),
        alarm(),
    ],
)
def test_an_alarm_on_anything_else_is_passed_over(event: dict[str, Any]) -> None:
    """Other metrics, groups, sums, alarms on alarms, states of tomorrow."""
    assert "about no status check of an instance" in passed_over(event)


def test_a_metric_that_only_feeds_a_sum_names_no_machine() -> None:
    """The alarm is on the sum: it does not say whose check failed."""
    event = alarm("StatusCheckFailed_System", "StatusCheckFailed_System")
    for one in event["detail"]["configuration"]["metrics"]:
        one["returnData"] = False
    assert "about no status check" in passed_over(event)


@pytest.mark.parametrize("timestamp", [None, "placeholder", "9999-12-31T00:00:00.000+0000"])
def test_an_alarm_without_a_time_is_ordered_by_its_event(timestamp: str | None) -> None:
    """Or by the clock, if it says a time that is still to come."""
    event = alarm("StatusCheckFailed_System")
    event["detail"]["state"]["timestamp"] = timestamp
    assert warning(event).since == (NOW if str(timestamp).startswith("9999") else at(2019, 10, 2, 17, 4, 40))
