"""The health of GPUs in a report: whether it is news, and how it is told."""

from __future__ import annotations

from datetime import datetime

from gpu_recovery.core import events
from gpu_recovery.core.health_signals import HealthKind, HealthStatus
from gpu_recovery.core.heartbeat import AgentReport, GpuHealth, Heartbeat, ReportedSxid, ReportedXid
from gpu_recovery.core.xid import XidProfile, needs_check, switch_needs_check

XIDS_NAMED_MAX = 4
"""How many XIDs a sentence names."""


def health_news(
    before: Heartbeat | None, report: AgentReport, present: bool, now: datetime, profile: XidProfile
) -> events.HealthReported | None:
    """Return the health that a report tells, if it differs from the health before or an XID needs a check.

    A late report says how the GPUs were, so only its XIDs count. What a repeated report says is told again: the
    function that received it first may have been killed before it told anybody.

    Args:
        before: the heartbeat before this report; None if this is the first.
        present: False for a late report.
        profile: which XIDs need a check.
    """
    # What was logged under an earlier boot is history: it is no reason to check the instance now.
    present_xids = [one for one in report.xids if not _is_from_earlier_boot(one, report)]
    present_sxids = [one for one in report.sxids if not _is_from_earlier_boot(one, report)]
    grave: list[ReportedXid | ReportedSxid] = [
        one for one in present_xids if needs_check(one.xid, one.occurrences, one.action, profile)
    ]
    grave += [one for one in present_sxids if switch_needs_check(one.fatal, one.bursts or one.count, profile)]
    word = _health_event(report, grave)
    repeated = before is not None and bool(report.boot_id) and _numbered(before) == _numbered(report)
    said = None if repeated else GpuHealth.OK
    if before is not None and before.health is not None and not repeated:
        said = before.health
    if word is None or (not grave and (said is report.health or not present)):
        return None
    return events.HealthReported(
        at=now, kind=HealthKind.NODE_AGENT, status=word, since=now, sentence=_sentence(report, grave)
    )


def logged_before(report: AgentReport) -> str:
    """What the kernel's log had said before the boot, and could not be told while it was on."""
    logged: tuple[ReportedXid | ReportedSxid, ...] = (*report.xids, *report.sxids)
    old = [_named(one) for one in logged if _is_from_earlier_boot(one, report)]
    more = f" and {len(old) - XIDS_NAMED_MAX} more" if len(old) > XIDS_NAMED_MAX else ""
    return f"logged before this boot: {'; '.join(old[:XIDS_NAMED_MAX])}{more}" if old else ""


def _is_from_earlier_boot(one: ReportedXid | ReportedSxid, report: AgentReport) -> bool:
    return one.boot_id not in ("", report.boot_id)


def _numbered(one: Heartbeat | AgentReport) -> tuple[str | None, int | None]:
    """Which report it is, or was the latest."""
    return one.boot_id, one.sequence


def _health_event(report: AgentReport, grave: list[ReportedXid | ReportedSxid]) -> HealthStatus | None:
    if grave or report.health is GpuHealth.IMPAIRED:
        return HealthStatus.IMPAIRED
    if report.health is None:
        return None
    return HealthStatus.OK if report.health is GpuHealth.OK else HealthStatus.INSUFFICIENT_DATA


def _sentence(report: AgentReport, grave: list[ReportedXid | ReportedSxid]) -> str:
    words = [_named(one) for one in grave[:XIDS_NAMED_MAX]]
    return "; ".join([*words, *([report.sentence] if report.sentence else [])])


def _named(one: ReportedXid | ReportedSxid) -> str:
    if isinstance(one, ReportedSxid):
        return f"{'fatal ' if one.fatal else ''}SXid {one.sxid} of an NVSwitch"
    return f"XID {one.xid} on {one.gpu or 'an unknown GPU'}" + _and_more(one)


def _and_more(one: ReportedXid) -> str:
    often = f", {one.occurrences} times within a day" if one.occurrences > 1 else ""
    return often + (f", the driver asks for recovery action {one.action}" if one.action else "")
