"""Parser of ECS health checks of a container instance, in events and in DescribeContainerInstances.

The two have the same fields. A description has times as datetimes, an event as texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timedelta

from gpu_recovery.aws.fields import Fields
from gpu_recovery.core.events import HealthReported
from gpu_recovery.core.health_signals import HealthKind, HealthStatus
from gpu_recovery.core.mps_daemon import names_mps_daemon, reason_by_sharing

XID = re.compile(r"XID_(\d{1,4})\b")
DISCONNECTED_AT_LEAST = timedelta(minutes=5)
"""Time for which an ECS agent must be disconnected before the instance counts as impaired."""


def health_report(check: Fields, at: datetime, now: datetime, gpus_shared: int = 0) -> HealthReported | None:
    """Return the report of one health check; None if its type or status is unknown.

    Args:
        check: the health check.
        at: the time of the event or the description.
        now: the present time.
        gpus_shared: number of GPUs of the instance that containers share by MPS, as far as the document says it.
    """
    kind, status = check.text("type"), check.text("status")
    if kind not in set(HealthKind) or status not in set(HealthStatus):
        return None
    sentence = reason_by_sharing(HealthKind(kind), HealthStatus(status), check.prose("statusReason"), gpus_shared)
    xid = XID.search(sentence)
    updated_at = happened_at(check, "lastUpdated", now)
    return HealthReported(
        at=at,
        kind=HealthKind(kind),
        status=HealthStatus(status),
        since=happened_at(check, "lastStatusChange", now) or updated_at or at,
        sentence=sentence,
        xid=int(xid[1]) if xid else None,
        updated_at=updated_at,
    )


def may_be_a_flap(report: HealthReported, now: datetime) -> bool:
    """Return whether the report only says that the ECS agent is disconnected for less than `DISCONNECTED_AT_LEAST`.

    An agent disconnects several times an hour in normal operation (ECS developer guide, container instance events).
    ECS and the scheduler place nothing on a disconnected instance in any case. The resync delivers a report that lasts.
    """
    lasts = now - report.since >= DISCONNECTED_AT_LEAST
    return report.kind is HealthKind.AGENT_CONNECTIVITY and report.status is HealthStatus.IMPAIRED and not lasts


def health_reports(checks: Iterable[Fields], now: datetime, gpus_shared: int = 0) -> tuple[HealthReported, ...]:
    """Return the reports of the health checks in a description of `now`, one for each type.

    Unknown types and statuses are left out, and so is a disconnected agent that may be back in a moment.

    Args:
        checks: the health checks.
        now: the time of the description.
        gpus_shared: number of GPUs of the instance that containers share by MPS.
    """
    reports = (health_report(check, now, now, gpus_shared) for check in checks)
    return one_of_each_type(report for report in reports if report is not None and not may_be_a_flap(report, now))


def one_of_each_type(reports: Iterable[HealthReported]) -> tuple[HealthReported, ...]:
    """Return the gravest report of each type, in the order of the document.

    The ECS agent has two health checks of the type ACCELERATED_COMPUTE: of the GPUs, and of the MPS daemon. Whether ECS
    combines them is not documented. The report about a GPU decides; the MPS daemon may fail because of the GPU.
    """
    gravest: dict[HealthKind, HealthReported] = {}
    for report in reports:
        known = gravest.setdefault(report.kind, report)
        if _gravity(report) > _gravity(known):
            gravest[report.kind] = report
    return tuple(gravest.values())


def _gravity(report: HealthReported) -> int:
    """Return the gravity of a report among reports of one type: a fault of a GPU, the MPS daemon, anything else."""
    if report.status is not HealthStatus.IMPAIRED:
        return 0
    return 1 if names_mps_daemon(report.sentence) else 2


def happened_at(fields: Fields, name: str, now: datetime) -> datetime | None:
    """Return when something happened, at most `now`: later reports would never be newer than a time in the future."""
    time = fields.time(name)
    return None if time is None else min(time, now)
