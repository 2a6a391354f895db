"""Health reports, announcements, and an instance in each status."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpu_recovery.core import events
from gpu_recovery.core.fleet import Pause
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.health_signals import HealthKind, HealthStatus
from gpu_recovery.core.instance.record import Instance, InstanceStatus

from tests.core.build import (
    ADAPTIVE,
    FLEET,
    NOW,
    applied,
    available,
    checking,
    observed,
    rebooting,
    tell,
    verdict_of,
    verifying,
)

S = InstanceStatus
IMPAIRED, OK, UNKNOWN = HealthStatus.IMPAIRED, HealthStatus.OK, HealthStatus.INSUFFICIENT_DATA
ON = replace(ADAPTIVE, replace=True)
PAUSED = replace(FLEET, pause=Pause("ada", "moving house", NOW))


def health_report(
    kind: HealthKind, status: HealthStatus = IMPAIRED, since: Any = NOW, xid: int | None = None
) -> events.HealthReported:
    """Return what the health source `kind` reports at `since`."""
    return events.HealthReported(at=since, kind=kind, status=status, since=since, sentence="it says so", xid=xid)


def quarantined() -> Instance:
    """Return an instance that an operator has quarantined."""
    order = events.QuarantineRequested(at=NOW, by="ada")
    return applied(tell(available(), order))


def replacing() -> Instance:
    """Return an instance that is being replaced because its check failed."""
    record = checking(ON)
    return applied(tell(record, verdict_of(record, CheckOutcome.REPLACE), ON))


def resetting() -> Instance:
    """Return an instance whose GPUs are reset because the driver asks for that."""
    record, policy = checking(ADAPTIVE), replace(ADAPTIVE, gpu_reset=True)
    blamed = verdict_of(record, CheckOutcome.REBOOT)
    return applied(tell(record, replace(blamed, verdict=replace(blamed.verdict, reset=True)), policy))


IN_STATUS: dict[InstanceStatus, Any] = {
    S.AVAILABLE: available,
    S.CHECKING: checking,
    S.RESETTING: resetting,
    S.REBOOTING: rebooting,
    S.REPLACING: replacing,
    S.VERIFYING: verifying,
    S.QUARANTINED: quarantined,
    S.GONE: lambda: applied(tell(available(), observed(2, ecs_status="INACTIVE"))),
}
