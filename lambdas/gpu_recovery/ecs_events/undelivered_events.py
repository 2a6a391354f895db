"""Undelivered events of an instance: what EC2 and ECS show of the instance, and its record lacks.

The resync compares every instance each minute. A notification that proves nothing by itself has its one instance
compared at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from gpu_recovery.core import events
from gpu_recovery.core.health_signals import Ec2InstanceState, HealthStatus
from gpu_recovery.core.instance.health_reports import is_about_mps
from gpu_recovery.core.instance.interruptions import is_called_off, is_known
from gpu_recovery.core.instance.record import HealthReport, InstanceStatus, ListedInstance
from gpu_recovery.core.mps_daemon import names_mps_daemon
from gpu_recovery.ports.values import Ec2InstanceStatus

_DECISIVE = (HealthStatus.OK, HealthStatus.IMPAIRED)
"""Health statuses that lead to an event. `INSUFFICIENT_DATA` and `INITIALIZING` do not."""


def undelivered_ec2_events(
    record: ListedInstance, status: Ec2InstanceStatus, now: datetime
) -> Iterator[events.InstanceEvent]:
    """Yield the events that the record lacks, from the state, status checks and scheduled events that EC2 shows."""
    if status.state.is_off and not _is_restarting(record, status.state):
        yield events.MachineSeen(at=now, state=status.state)
        return
    yield from undelivered_reports(record, status.health)
    for interruption in status.interruptions:
        plan = record.departure
        if interruption.called_off:
            # EC2 shows a rescheduled event twice for a week: canceled, and with its new time.
            is_rescheduled = plan is not None and any(
                is_called_off(plan, other) for other in status.interruptions if not other.called_off
            )
            is_news = plan is not None and is_called_off(plan, interruption) and not is_rescheduled
        else:
            is_news = plan is None or not is_known(plan, interruption)
        if is_news:
            yield interruption


def undelivered_reports(
    record: ListedInstance, reports: tuple[events.HealthReported, ...]
) -> Iterator[events.HealthReported]:
    """Yield the reports that are newer than the record's of the same health source, and have another status.

    A health source of which nothing is recorded counts as OK. A fault of a GPU after a failure of the MPS daemon is
    news, although both have the status IMPAIRED.
    """
    for report in reports:
        known = record.health.get(report.kind)
        if report.status not in _DECISIVE:
            continue
        if known is not None and not known.is_older_than(report.since, report.updated_at):
            continue
        if report.status is not (known.status if known is not None else HealthStatus.OK) or _blames_gpu(report, known):
            yield report


def _blames_gpu(report: events.HealthReported, known: HealthReport | None) -> bool:
    """Return whether the report is about a GPU, and the recorded report only about the MPS daemon."""
    if known is None or report.status is not HealthStatus.IMPAIRED or not is_about_mps(known):
        return False
    return bool(report.sentence) and not names_mps_daemon(report.sentence)


def _is_restarting(record: ListedInstance, state: Ec2InstanceState) -> bool:
    """Return whether the instance is stopped because a repair stopped it, and its start is already requested."""
    started = record.reboot is not None and record.reboot.started
    return record.status is InstanceStatus.REPLACING and state is Ec2InstanceState.STOPPED and started
