"""What those who watch machines from outside say: ECS's health checks, EC2, AWS Health and CloudWatch.

Published events lack times and versions, have placeholders and blanks in them, and speak of load balancers and capacity
reservations as well. What is not about an instance, or says nothing that we act upon, is passed over with a sentence;
only an event that should name its instance and does not is unreadable. None has a version: each word carries the time
by which the core orders what one watcher says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

from gpu_recovery.aws.fields import EventUnreadable, Fields, fields_of
from gpu_recovery.core.events import DepartureAnnounced, HealthReported
from gpu_recovery.core.health_signals import DepartureKind, Ec2InstanceState, HealthKind, HealthStatus
from gpu_recovery.ecs_events.health import Ec2StateChanged, HealthNotification, InstanceHealthEvent, SkippedNotification

INSTANCE_ID = re.compile(r"i-[0-9a-f]{8,17}")
XID = re.compile(r"XID_(\d{1,4})\b")
NOTICE = timedelta(seconds=120)
"""How long before an interruption EC2 warns of it."""
AGES = timedelta(days=36_500)
"""A plan for another time than this far away is a placeholder; reckoning with it could leave the calendar."""
METRICS = {
    "StatusCheckFailed_System": HealthKind.SYSTEM_STATUS,
    "StatusCheckFailed_Instance": HealthKind.INSTANCE_STATUS,
    # Either of the two: the milder one, until a look at the machine tells which.
    "StatusCheckFailed": HealthKind.INSTANCE_STATUS,
}
ALARMS = {
    "ALARM": HealthStatus.IMPAIRED,
    "OK": HealthStatus.OK,
    "INSUFFICIENT_DATA": HealthStatus.INSUFFICIENT_DATA,
}
PLANS = {
    "RETIREMENT_SCHEDULED": DepartureKind.RETIREMENT,
    "RETIREMENT_EXPEDITED": DepartureKind.RETIREMENT,
    "STOP_SCHEDULED": DepartureKind.RETIREMENT,
    "TERMINATION_SCHEDULED": DepartureKind.RETIREMENT,
    "MAINTENANCE_SCHEDULED": DepartureKind.MAINTENANCE,
}
"""How the codes of AWS Health end that plan something with a machine. A stop or a termination takes its host away."""
PLAN_PHRASES = {
    DepartureKind.RETIREMENT: "EC2 takes its host away",
    DepartureKind.MAINTENANCE: "EC2 maintains it or its host",
}


def is_health_event(event: Mapping[str, Any]) -> bool:
    """Whether the EventBridge event is one that this module reads. EventUnreadable if it is no object."""
    kind = fields_of(event).values.get("detail-type")
    return isinstance(kind, str) and kind in _READERS


def notifications_of(event: Mapping[str, Any], now: datetime) -> tuple[HealthNotification, ...]:
    """What the event says; `now` stands in for a time that it does not give.

    Raises EventUnreadable, which names the field that is missing or not what it must be.
    """
    told = fields_of(event).required("detail")
    at = _happened(told, "time", now) or now
    return tuple(_READERS[event["detail-type"]](told, at, now))


def _happened(told: Fields, name: str, now: datetime) -> datetime | None:
    """When something happened: not later than `now`, or nothing that is said afterwards would ever be newer."""
    time = told.time(name)
    return None if time is None else min(time, now)


# -- ECS ---------------------------------------------------------------------------------------------------------------


def _health_change(told: Fields, at: datetime, now: datetime) -> Iterator[HealthNotification]:
    detail = told.fields("detail").required("ec2InstanceId")
    instance_id = detail.last_id("ec2InstanceId")
    for check in detail.each("healthChecks"):
        kind, status = check.text("type"), check.text("status")
        if kind not in set(HealthKind) or status not in set(HealthStatus):
            yield SkippedNotification(
                f"{instance_id}: nobody has described the health check {kind!r} with status {status!r}"
            )
            continue
        sentence = check.prose("statusReason")
        xid = XID.search(sentence)
        since = _happened(check, "lastStatusChange", now) or _happened(check, "lastUpdated", now) or at
        yield InstanceHealthEvent(
            instance_id,
            HealthReported(
                at=at,
                kind=HealthKind(kind),
                status=HealthStatus(status),
                since=since,
                sentence=sentence,
                xid=int(xid[1]) if xid else None,
            ),
        )


# -- EC2 ---------------------------------------------------------------------------------------------------------------


def _instance_of(told: Fields) -> str:
    """The instance of an EC2 event. The ARN may have a zone for its region, but it ends in the id."""
    detail = told.fields("detail")
    found = detail.last_id("instance-id")
    for resource in told.texts("resources") if not found else ():
        found = resource.rsplit("/", 1)[-1].strip()
    if not INSTANCE_ID.fullmatch(found):
        raise EventUnreadable(detail.at("instance-id"), f"must be the id of an EC2 instance, not {found[:80]!r}")
    return found


def _state_change(told: Fields, at: datetime, now: datetime) -> Iterator[HealthNotification]:
    instance_id = _instance_of(told)
    state = told.fields("detail").required("state").text("state").strip().lower()
    if state == Ec2InstanceState.PENDING:
        yield SkippedNotification(f"{instance_id} is pending: what becomes of it will be said")
    else:
        yield Ec2StateChanged(instance_id, state)


def _interruption(told: Fields, at: datetime, now: datetime) -> Iterator[HealthNotification]:
    instance_id, leaves_at = _instance_of(told), at + NOTICE
    reserved = told.text("detail-type").startswith("EC2 Capacity Reservation")
    whose = "its capacity reservation" if reserved else "the Spot instance"
    yield _announced(
        instance_id, at, DepartureKind.INTERRUPTION, leaves_at, f"EC2 interrupts {whose} at {leaves_at:%H:%M:%S} UTC"
    )


def _rebalance(told: Fields, at: datetime, now: datetime) -> Iterator[HealthNotification]:
    sentence = "EC2 says that it is more likely than usual to be interrupted"
    yield _announced(_instance_of(told), at, DepartureKind.REBALANCE, at, sentence)


def _announced(
    instance_id: str,
    at: datetime,
    kind: DepartureKind,
    leaves_at: datetime,
    sentence: str,
    source: str = "",
    called_off: bool = False,
) -> InstanceHealthEvent:
    event = DepartureAnnounced(
        at=at, kind=kind, source=source or kind, leaves_at=leaves_at, sentence=sentence, called_off=called_off
    )
    return InstanceHealthEvent(instance_id, event)


# -- AWS Health --------------------------------------------------------------------------------------------------------


def _health_event(told: Fields, at: datetime, now: datetime) -> Iterator[HealthNotification]:
    """One word for each affected instance; a long event comes in pages, each with instances of its own."""
    detail = told.fields("detail")
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


def _planned(told: Fields, name: str, now: datetime) -> datetime | None:
    """The aware UTC time of an ISO text, or of one as in e-mail (RFC 1123); None for anything else, or ages away."""
    time = told.time(name)
    if time is None:
        try:
            parsed = parsedate_to_datetime(told.text(name))
            time = (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).astimezone(UTC)
        except (ValueError, OverflowError):
            return None
    return time if abs(time - now) < AGES else None


# -- CloudWatch --------------------------------------------------------------------------------------------------------


def _alarm(told: Fields, at: datetime, now: datetime) -> Iterator[HealthNotification]:
    """A status check of an instance. An alarm on other metrics, or on a sum of several, names no one machine."""
    detail = told.fields("detail")
    state = detail.fields("state")
    name, value = detail.prose("alarmName"), state.text("value")
    metrics = detail.fields("configuration").each("metrics")
    found = [_metric(one) for one in metrics if one.values.get("returnData") is not False]
    about = [(metric, instance_id) for metric, instance_id in found if metric in METRICS and instance_id]
    if not about or value not in ALARMS:
        yield SkippedNotification(
            f"the alarm {name!r} is {value or 'in no state'} and about no status check of an instance"
        )
        return
    for metric, instance_id in about:
        sentence = f"the alarm {name!r} on {metric} is {value}"
        since = _happened(state, "timestamp", now) or at
        yield InstanceHealthEvent(
            instance_id,
            HealthReported(at=at, kind=METRICS[metric], status=ALARMS[value], since=since, sentence=sentence),
        )


def _metric(told: Fields) -> tuple[str, str]:
    """The metric's name, and the instance whose it is; "" for any other subject."""
    metric = told.fields("metricStat").fields("metric")
    instance_id = metric.fields("dimensions").text("InstanceId").strip()
    is_ec2 = metric.text("namespace") == "AWS/EC2" and INSTANCE_ID.fullmatch(instance_id)
    return metric.text("name"), instance_id if is_ec2 else ""


_READERS: dict[Any, Callable[[Fields, datetime, datetime], Iterator[HealthNotification]]] = {
    "ECS Container Instance Health Change": _health_change,
    "EC2 Instance State-change Notification": _state_change,
    "EC2 Spot Instance Interruption Warning": _interruption,
    "EC2 Capacity Reservation Instance Interruption Warning": _interruption,
    "EC2 Instance Rebalance Recommendation": _rebalance,
    "AWS Health Event": _health_event,
    "CloudWatch Alarm State Change": _alarm,
}
