"""Parser of ECS health checks of a container instance, in events and in DescribeContainerInstances.

The two have the same fields. A description has times as datetimes, an event as texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime

from gpu_recovery.aws.fields import Fields
from gpu_recovery.core.events import HealthReported
from gpu_recovery.core.health_signals import HealthKind, HealthStatus

XID = re.compile(r"XID_(\d{1,4})\b")


def health_report(check: Fields, at: datetime, now: datetime) -> HealthReported | None:
    """Return the report of one health check; None if its type or status is unknown.

    Args:
        check: the health check.
        at: the time of the event or the description.
        now: the present time.
    """
    kind, status = check.text("type"), check.text("status")
    if kind not in set(HealthKind) or status not in set(HealthStatus):
        return None
    sentence = check.prose("statusReason")
    xid = XID.search(sentence)
    return HealthReported(
        at=at,
        kind=HealthKind(kind),
        status=HealthStatus(status),
        since=happened_at(check, "lastStatusChange", now) or happened_at(check, "lastUpdated", now) or at,
        sentence=sentence,
        xid=int(xid[1]) if xid else None,
    )


def health_reports(checks: Iterable[Fields], now: datetime) -> tuple[HealthReported, ...]:
    """Return the reports of the health checks in a description of `now`, unknown types and statuses left out."""
    return tuple(report for check in checks if (report := health_report(check, now, now)) is not None)


def happened_at(fields: Fields, name: str, now: datetime) -> datetime | None:
    """Return when something happened, at most `now`: later reports would never be newer than a time in the future."""
    time = fields.time(name)
    return None if time is None else min(time, now)
