"""Events about the health of instances, for tests: as others published them, and in the shapes that AWS documents."""

from __future__ import annotations

import copy
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gpu_recovery.aws.health_events import notifications_of
from gpu_recovery.ecs_events.health import HealthNotification, InstanceHealthEvent, SkippedNotification

from tests.aws.environment import ACCOUNT, REGION
from tests.aws.records import NOW, A

EVENTS = Path(__file__).parents[1] / "events"
RETIREMENT = "health_ec2_persistent_instance_retirement_real"
KINDS = ("ec2_rebalance", "ec2_spot", "ec2_state", "health_", "cloudwatch_alarm")
PUBLISHED = sorted(path.stem for path in EVENTS.glob("*.json") if path.name.startswith(KINDS))
"""The names of the published events about instances."""


def published(name: str) -> dict[str, Any]:
    """An event as somebody published it."""
    loaded: dict[str, Any] = json.loads((EVENTS / f"{name}.json").read_text())
    return loaded


def the(event: dict[str, Any], now: datetime = NOW) -> HealthNotification:
    """The one thing that the event says."""
    (word,) = notifications_of(event, now)
    return word


def warning(event: dict[str, Any]) -> Any:
    """The core's event in an event that warns one instance."""
    word = the(event)
    assert isinstance(word, InstanceHealthEvent)
    return word.event


def passed_over(event: dict[str, Any]) -> str:
    """Why nothing follows from the event."""
    word = the(event)
    assert isinstance(word, SkippedNotification)
    return word.sentence


def at(year: int, month: int, day: int, hour: int = 0, minute: int = 0, second: int = 0) -> datetime:
    return datetime(year, month, day, hour, minute, second, tzinfo=UTC)


def health_change(*checks: dict[str, Any], **detail: Any) -> dict[str, Any]:
    """An event with these checks, as ECS documents it: it has no version."""
    return {
        "version": "0",
        "id": "1",
        "detail-type": "ECS Container Instance Health Change",
        "source": "aws.ecs",
        "account": ACCOUNT,
        "region": REGION,
        "time": "2026-11-21T08:59:00Z",
        "resources": [],
        "detail": {
            "clusterArn": "c",
            "containerInstanceArn": "ci",
            "capacityProviderName": None,
            "ec2InstanceId": A,
            "overallStatus": "IMPAIRED",
            "healthChecks": list(checks),
            **detail,
        },
    }


def check(kind: str = "ACCELERATED_COMPUTE", status: str = "IMPAIRED", **more: Any) -> dict[str, Any]:
    """One health check."""
    times = {"lastStatusChange": "2026-11-21T08:58:00.5Z", "lastUpdated": "2026-11-21T08:57:00Z"}
    return {"type": kind, "status": status, "statusReason": None, **times, **more}


def health(code: str = "AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED", *entities: Any, **detail: Any) -> dict[str, Any]:
    """An event of AWS Health about these entities."""
    event = published(RETIREMENT)
    named = [{"entityValue": one} if isinstance(one, str) else one for one in entities or (A,)]
    event["detail"] |= {"eventArn": "arn:1", "eventTypeCode": code, "affectedEntities": named} | detail
    return event


def alarm(*names: str, value: Any = "ALARM", **metric: Any) -> dict[str, Any]:
    """An alarm on these metrics of an instance, in the shape of the published one."""
    event = published("cloudwatch_alarm_servercputoohigh")
    (shape,) = event["detail"]["configuration"]["metrics"]
    found = [copy.deepcopy(shape) for _ in names]
    for one, name in zip(found, names, strict=True):
        one["metricStat"]["metric"] |= {"name": name, "dimensions": {"InstanceId": A}} | metric
    event["detail"]["configuration"]["metrics"] = found
    event["detail"]["state"]["value"] = value
    return event
