"""Parser of events of health sources: ECS container instance health, EC2, AWS Health and CloudWatch alarms.

Published events lack times and versions and contain placeholders and blanks. Some are about load balancers or capacity
reservations. An event that is not about an instance, or that has no consequence, is skipped with a sentence. An event
that must name its instance and does not is unreadable. No event has a version, so each report carries the time by which
the core orders the reports of one health source.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

from gpu_recovery.aws.ecs_health import happened_at, health_report, may_be_a_flap, one_of_each_type
from gpu_recovery.aws.fields import EventUnreadable, Fields, fields_of
from gpu_recovery.core.events import DepartureAnnounced
from gpu_recovery.core.health_signals import CAPACITY_BLOCK_WARNINGS, DepartureKind, Ec2InstanceState
from gpu_recovery.ecs_events.health import (
    Ec2Hint,
    HealthNotification,
    InstanceHealthEvent,
    ReservationEnding,
    SkippedNotification,
)

INSTANCE_ID = re.compile(r"i-[0-9a-f]{8,17}")
RESERVATION_ID = re.compile(r"cr-[0-9a-f]{8,17}")
NOTICE = timedelta(seconds=120)
"""Time between EC2's interruption warning and the interruption."""
BLOCK_NOTICE = timedelta(minutes=10)
"""Time between the warning about a Capacity Block and the first termination."""
BLOCK_END = timedelta(minutes=40)
"""Time between the warning about a Capacity Block and its end."""
PLANNED_DISTANCE_MAX = timedelta(days=36_500)
"""Upper bound of the distance between now and a planned time. A time further away is a placeholder.

Arithmetic with such a time could leave the range of `datetime`.
"""
METRICS = ("StatusCheckFailed", "StatusCheckFailed_System", "StatusCheckFailed_Instance")
"""Metrics of EC2's status checks. The first combines both checks."""
ALARM_STATES = ("ALARM", "OK", "INSUFFICIENT_DATA")
PLANS = {
    "RETIREMENT_SCHEDULED": DepartureKind.RETIREMENT,
    "RETIREMENT_EXPEDITED": DepartureKind.RETIREMENT,
    "STOP_SCHEDULED": DepartureKind.RETIREMENT,
    "TERMINATION_SCHEDULED": DepartureKind.RETIREMENT,
    "MAINTENANCE_SCHEDULED": DepartureKind.MAINTENANCE,
}
"""Endings of the AWS Health codes that announce a plan for an instance. A stop or a termination removes its host."""
PLAN_PHRASES = {
    DepartureKind.RETIREMENT: "EC2 takes its host away",
    DepartureKind.MAINTENANCE: "EC2 maintains it or its host",
}


def is_health_event(event: Mapping[str, Any]) -> bool:
    """Return whether this module parses the EventBridge event.

    Raises:
        EventUnreadable: the event is no object.
    """
    kind = fields_of(event).values.get("detail-type")
    return isinstance(kind, str) and kind in _READERS


def notifications_of(event: Mapping[str, Any], now: datetime) -> tuple[HealthNotification, ...]:
    """Parse the event of a health source.

    Args:
        event: the EventBridge event, for which `is_health_event` holds.
        now: the present time, which replaces a missing time.

    Raises:
        EventUnreadable: a field is missing or malformed. The error names the field.
    """
    fields = fields_of(event).required("detail")
    at = happened_at(fields, "time", now) or now
    return tuple(_READERS[event["detail-type"]](fields, at, now))


# -- ECS ---------------------------------------------------------------------------------------------------------------


def _health_change(event: Fields, at: datetime, now: datetime) -> Iterator[HealthNotification]:
    detail = event.fields("detail").required("ec2InstanceId")
    instance_id = detail.last_id("ec2InstanceId")
    read = [(check, health_report(check, at, now)) for check in detail.each("healthChecks")]
    delivered = one_of_each_type(report for _, report in read if report is not None)
    for check, report in read:
        if report is None:
            yield SkippedNotification(
                f"{instance_id}: unknown health check {check.text('type')!r} with status {check.text('status')!r}"
            )
        elif may_be_a_flap(report, now):
            yield SkippedNotification(
                f"{instance_id}: its agent is disconnected; only a lasting disconnection is reported"
            )
        elif any(report is one for one in delivered):
            yield InstanceHealthEvent(instance_id, report)
        else:
            yield SkippedNotification(f"{instance_id}: another {report.kind} in the same event is graver")


# -- EC2 ---------------------------------------------------------------------------------------------------------------


def _instance_of(event: Fields) -> str:
    """Return the instance id of an EC2 event.

    If `detail` has no id, the last resource ARN gives the id. Such an ARN may have a zone in place of its region, but
    it ends in the id.
    """
    detail = event.fields("detail")
    instance_id = detail.last_id("instance-id")
    for resource in event.texts("resources") if not instance_id else ():
        instance_id = resource.rsplit("/", 1)[-1].strip()
    if not INSTANCE_ID.fullmatch(instance_id):
        raise EventUnreadable(detail.at("instance-id"), f"must be the id of an EC2 instance, not {instance_id[:80]!r}")
    return instance_id


def _state_change(event: Fields, at: datetime, now: datetime) -> Iterator[HealthNotification]:
    instance_id = _instance_of(event)
    state = event.fields("detail").required("state").text("state").strip().lower()
    if state == Ec2InstanceState.PENDING:
        yield SkippedNotification(f"{instance_id} is pending: what becomes of it will be said")
    else:
        yield Ec2Hint(instance_id, f"it was {state[:80]}", is_terminated=state == Ec2InstanceState.TERMINATED)


def _interruption(event: Fields, at: datetime, now: datetime) -> Iterator[HealthNotification]:
    instance_id, leaves_at = _instance_of(event), at + NOTICE
    reserved = event.text("detail-type").startswith("EC2 Capacity Reservation")
    subject = "its capacity reservation" if reserved else "the Spot instance"
    yield _announced(
        instance_id, at, DepartureKind.INTERRUPTION, leaves_at, f"EC2 interrupts {subject} at {leaves_at:%H:%M:%S} UTC"
    )


def _capacity_block(event: Fields, at: datetime, now: datetime) -> Iterator[HealthNotification]:
    """Yield the end of a Capacity Block. The event names the reservation and none of its instances."""
    reservation = event.fields("detail").required("capacity-reservation-id").text("capacity-reservation-id").strip()
    if not RESERVATION_ID.fullmatch(reservation):
        field = event.fields("detail").at("capacity-reservation-id")
        raise EventUnreadable(field, f"must be the id of a Capacity Reservation, not {reservation[:80]!r}")
    leaves_at = at + BLOCK_NOTICE
    sentence = f"EC2 terminates the instances of the Capacity Block {reservation} from {leaves_at:%H:%M:%S} UTC on"
    departure = _departure(at, DepartureKind.INTERRUPTION, leaves_at, sentence, reservation)
    yield ReservationEnding(reservation, departure, at + BLOCK_END)


def _rebalance(event: Fields, at: datetime, now: datetime) -> Iterator[HealthNotification]:
    sentence = "EC2 says that it is more likely than usual to be interrupted"
    yield _announced(_instance_of(event), at, DepartureKind.REBALANCE, at, sentence)


def _announced(
    instance_id: str,
    at: datetime,
    kind: DepartureKind,
    leaves_at: datetime,
    sentence: str,
    source: str = "",
    called_off: bool = False,
) -> InstanceHealthEvent:
    return InstanceHealthEvent(instance_id, _departure(at, kind, leaves_at, sentence, source or kind, called_off))


def _departure(
    at: datetime, kind: DepartureKind, leaves_at: datetime, sentence: str, source: str, called_off: bool = False
) -> DepartureAnnounced:
    return DepartureAnnounced(
        at=at, kind=kind, source=source, leaves_at=leaves_at, sentence=sentence, called_off=called_off
    )


# -- AWS Health --------------------------------------------------------------------------------------------------------


def _health_event(event: Fields, at: datetime, now: datetime) -> Iterator[HealthNotification]:
    """Yield a notification for each affected instance. A long event comes in pages, each with other instances."""
    detail = event.fields("detail")
    service, code = detail.text("service"), detail.text("eventTypeCode")
    kind = next((kind for ending, kind in PLANS.items() if code.endswith(ending)), None)
    if service != "EC2" or kind is None:
        yield SkippedNotification(
            f"{code or 'an event without a code'} of {service or 'no service'} plans nothing with a machine"
        )
        return
    source = detail.required("eventArn").text("eventArn")
    starts_at = _planned(detail, "startTime", now) or at
    sentence = f"{PLAN_PHRASES[kind]} from {starts_at:%Y-%m-%d %H:%M} UTC on ({code})"
    is_closed = detail.text("statusCode") == "closed"
    for entity in detail.each("affectedEntities"):
        name = entity.text("entityValue").strip().rsplit("/", 1)[-1]
        if INSTANCE_ID.fullmatch(name):
            called_off = is_closed or entity.text("status") == "RESOLVED"
            yield _announced(name, at, kind, starts_at, sentence, source, called_off)
        else:
            yield SkippedNotification(f"{code} is about {name!r}, which is no instance")


def _planned(fields: Fields, name: str, now: datetime) -> datetime | None:
    """Return the aware UTC time of an ISO 8601 or RFC 1123 text.

    Returns:
        None if the text is neither, or if the time is at least PLANNED_DISTANCE_MAX away.
    """
    time = fields.time(name)
    if time is None:
        try:
            parsed = parsedate_to_datetime(fields.text(name))
            time = (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).astimezone(UTC)
        except (ValueError, OverflowError):
            return None
    return time if abs(time - now) < PLANNED_DISTANCE_MAX else None


# -- CloudWatch --------------------------------------------------------------------------------------------------------


def _alarm(event: Fields, at: datetime, now: datetime) -> Iterator[HealthNotification]:
    """Yield a hint for each instance with a status check that the alarm is on.

    An account principal can set any alarm to any state (SetAlarmState), so the state is no evidence. An alarm on other
    metrics, or on the sum of several instances, names no single instance and is skipped.
    """
    detail = event.fields("detail")
    name, value = detail.prose("alarmName"), detail.fields("state").text("value")
    metrics = detail.fields("configuration").each("metrics")
    named = [_metric(metric) for metric in metrics if metric.values.get("returnData") is not False]
    instance_ids = dict.fromkeys(instance_id for metric, instance_id in named if metric in METRICS and instance_id)
    if not instance_ids or value not in ALARM_STATES:
        yield SkippedNotification(
            f"the alarm {name!r} is {value or 'in no state'} and about no status check of an instance"
        )
    else:
        yield from (Ec2Hint(instance_id, f"the alarm {name!r} is {value}") for instance_id in instance_ids)


def _metric(entry: Fields) -> tuple[str, str]:
    """Return the name of a metric and the instance that it measures; "" for any other subject."""
    metric = entry.fields("metricStat").fields("metric")
    instance_id = metric.fields("dimensions").text("InstanceId").strip()
    is_ec2 = metric.text("namespace") == "AWS/EC2" and INSTANCE_ID.fullmatch(instance_id)
    return metric.text("name"), instance_id if is_ec2 else ""


_READERS: dict[Any, Callable[[Fields, datetime, datetime], Iterator[HealthNotification]]] = {
    "ECS Container Instance Health Change": _health_change,
    "EC2 Instance State-change Notification": _state_change,
    "EC2 Spot Instance Interruption Warning": _interruption,
    "EC2 Capacity Reservation Instance Interruption Warning": _interruption,
    **dict.fromkeys(CAPACITY_BLOCK_WARNINGS, _capacity_block),
    "EC2 Instance Rebalance Recommendation": _rebalance,
    "AWS Health Event": _health_event,
    "CloudWatch Alarm State Change": _alarm,
}
