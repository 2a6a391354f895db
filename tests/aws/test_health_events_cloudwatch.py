"""Alarms of CloudWatch on the status checks of an instance; all other alarms are passed over."""

from __future__ import annotations

from typing import Any

import pytest
from gpu_recovery.aws.health_events import notifications_of
from gpu_recovery.ecs_events.health import Ec2Hint

from tests.aws.health_events import PUBLISHED, alarm, passed_over, published, the
from tests.aws.records import NOW, A


@pytest.mark.parametrize("name", ["StatusCheckFailed_System", "StatusCheckFailed_Instance", "StatusCheckFailed"])
@pytest.mark.parametrize("value", ["ALARM", "OK", "INSUFFICIENT_DATA"])
def test_an_alarm_on_a_status_check_is_a_reason_to_ask_ec2(name: str, value: str) -> None:
    """The alarm's state says nothing about the instance: SetAlarmState sets any state."""
    assert the(alarm(name, value=value)) == Ec2Hint(A, f"the alarm 'ServerCpuTooHigh' is {value}")


def test_an_alarm_on_both_status_checks_of_an_instance_is_one_hint() -> None:
    """EC2 is asked once for each instance that the alarm names."""
    assert len(notifications_of(alarm("StatusCheckFailed_System", "StatusCheckFailed_Instance"), NOW)) == 1


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
