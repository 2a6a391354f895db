"""GPU health in an agent report: finds what changed, and makes the health event."""

from __future__ import annotations

from datetime import datetime

from gpu_recovery.core import events
from gpu_recovery.core.health_signals import HealthKind, HealthStatus
from gpu_recovery.core.heartbeat import BY_DCGM, AgentReport, GpuHealth, Heartbeat, ReportedSxid, ReportedXid
from gpu_recovery.core.xid import RECOVERY_ACTIONS, XidClass, XidProfile, class_of, needs_check, switch_needs_check

XIDS_NAMED_MAX = 4
"""XIDs that a sentence names at most."""


def health_event(
    before: Heartbeat | None, report: AgentReport, present: bool, now: datetime, profile: XidProfile
) -> events.HealthReported | None:
    """Return the health event of a report if the health changed or an XID needs a check; None otherwise.

    A late report says how the GPUs were, so only its XIDs count. A repeated report gives its event again: the function
    that received the report first may have been killed before it delivered the event.

    Args:
        before: the heartbeat before this report; None if this is the first.
        present: False for a late report.
        profile: which XIDs need a check.
    """
    # Errors of an earlier boot are no reason to check the instance now.
    present_xids = [error for error in report.xids if not _is_from_earlier_boot(error, report)]
    present_sxids = [error for error in report.sxids if not _is_from_earlier_boot(error, report)]
    serious: list[ReportedXid | ReportedSxid] = [
        error
        for error in present_xids
        if needs_check(
            error.xid, error.occurrences, error.action, profile, alone=_is_alone(error, present_xids, profile)
        )
    ]
    serious += [
        error for error in present_sxids if switch_needs_check(error.fatal, error.bursts or error.count, profile)
    ]
    status = _health_status(report, serious)
    repeated = before is not None and bool(report.boot_id) and _report_id(before) == _report_id(report)
    known_health = None if repeated else GpuHealth.OK
    if before is not None and before.health is not None and not repeated:
        known_health = before.health
    if status is None or (not serious and (known_health is report.health or not present)):
        return None
    return events.HealthReported(
        at=now, kind=HealthKind.NODE_AGENT, status=status, since=now, sentence=_sentence(report, serious)
    )


def logged_before(report: AgentReport) -> str:
    """Return a sentence about errors that the kernel logged before the present boot; "" if there are none.

    They could not be reported during that boot.
    """
    logged: tuple[ReportedXid | ReportedSxid, ...] = (*report.xids, *report.sxids)
    old = [_error_text(error) for error in logged if _is_from_earlier_boot(error, report)]
    and_more = f" and {len(old) - XIDS_NAMED_MAX} more" if len(old) > XIDS_NAMED_MAX else ""
    return f"logged before this boot: {'; '.join(old[:XIDS_NAMED_MAX])}{and_more}" if old else ""


def _is_alone(error: ReportedXid, others: list[ReportedXid], profile: XidProfile) -> bool:
    """Return whether the report has no XID on the same GPU that is a cause of its own, as the health check asks."""
    return not any(
        other.gpu == error.gpu and class_of(other.xid, profile) is not XidClass.FOLLOW_OTHER for other in others
    )


def _is_from_earlier_boot(error: ReportedXid | ReportedSxid, report: AgentReport) -> bool:
    """Return whether the kernel logged the error before the present boot."""
    return error.boot_id not in ("", report.boot_id)


def _report_id(report: Heartbeat | AgentReport) -> tuple[str | None, int | None]:
    """Return the boot and the sequence number, which identify a report."""
    return report.boot_id, report.sequence


def _health_status(report: AgentReport, serious: list[ReportedXid | ReportedSxid]) -> HealthStatus | None:
    if serious or report.health is GpuHealth.IMPAIRED:
        return HealthStatus.IMPAIRED
    if report.health is None:
        return None
    return HealthStatus.OK if report.health is GpuHealth.OK else HealthStatus.INSUFFICIENT_DATA


def _sentence(report: AgentReport, serious: list[ReportedXid | ReportedSxid]) -> str:
    parts = [_error_text(error) for error in serious[:XIDS_NAMED_MAX]]
    return "; ".join([*parts, *([report.sentence] if report.sentence else [])])


def _error_text(error: ReportedXid | ReportedSxid) -> str:
    early = ", logged before the agent started" if error.early and not error.boot_id else ""
    if isinstance(error, ReportedSxid):
        return f"{'fatal ' if error.fatal else ''}SXid {error.sxid} of an NVSwitch{early}"
    by_dcgm = ", reported by DCGM of the ECS agent and not by the kernel log" if error.source == BY_DCGM else ""
    return f"XID {error.xid} on {error.gpu or 'an unknown GPU'}{_details(error)}{early}{by_dcgm}"


def _details(error: ReportedXid) -> str:
    occurrences = f", {error.occurrences} times within a day" if error.occurrences > 1 else ""
    if not error.action:
        return occurrences
    name = RECOVERY_ACTIONS.get(error.action, "not known here")
    return f"{occurrences}, the driver asks for recovery action {error.action} ({name})"
