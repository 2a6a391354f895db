"""The health of GPUs in a report: whether it is news, and how it is told."""

from __future__ import annotations

from datetime import datetime

from gpu_recovery.core import events
from gpu_recovery.core.health_signals import HealthKind, HealthStatus
from gpu_recovery.core.heartbeat import Beat, GpuHealth, Report, SxidSeen, XidSeen
from gpu_recovery.core.xid import XidProfile, asks_for_a_look, switch_asks_for_a_look

XIDS_NAMED_MAX = 4
"""How many XIDs a sentence names."""


def health_news(
    before: Beat | None, report: Report, present: bool, now: datetime, profile: XidProfile
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
    present_xids = [one for one in report.xids if not _is_history(one, report)]
    present_sxids = [one for one in report.sxids if not _is_history(one, report)]
    grave: list[XidSeen | SxidSeen] = [
        one for one in present_xids if asks_for_a_look(one.xid, one.occurrences, one.action, profile)
    ]
    grave += [one for one in present_sxids if switch_asks_for_a_look(one.fatal, one.bursts or one.count, profile)]
    word = _word(report, grave)
    repeated = before is not None and bool(report.boot_id) and _numbered(before) == _numbered(report)
    said = None if repeated else GpuHealth.OK
    if before is not None and before.health is not None and not repeated:
        said = before.health
    if word is None or (not grave and (said is report.health or not present)):
        return None
    return events.HealthReported(
        at=now, kind=HealthKind.NODE_AGENT, status=word, since=now, sentence=_sentence(report, grave)
    )


def logged_before(report: Report) -> str:
    """What the kernel's log had said before the boot, and could not be told while it was on."""
    logged: tuple[XidSeen | SxidSeen, ...] = (*report.xids, *report.sxids)
    old = [_named(one) for one in logged if _is_history(one, report)]
    more = f" and {len(old) - XIDS_NAMED_MAX} more" if len(old) > XIDS_NAMED_MAX else ""
    return f"logged before this boot: {'; '.join(old[:XIDS_NAMED_MAX])}{more}" if old else ""


def _is_history(one: XidSeen | SxidSeen, report: Report) -> bool:
    return one.boot_id not in ("", report.boot_id)


def _numbered(one: Beat | Report) -> tuple[str | None, int | None]:
    """Which report it is, or was the latest."""
    return one.boot_id, one.sequence


def _word(report: Report, grave: list[XidSeen | SxidSeen]) -> HealthStatus | None:
    if grave or report.health is GpuHealth.IMPAIRED:
        return HealthStatus.IMPAIRED
    if report.health is None:
        return None
    return HealthStatus.OK if report.health is GpuHealth.OK else HealthStatus.INSUFFICIENT_DATA


def _sentence(report: Report, grave: list[XidSeen | SxidSeen]) -> str:
    words = [_named(one) for one in grave[:XIDS_NAMED_MAX]]
    return "; ".join([*words, *([report.sentence] if report.sentence else [])])


def _named(one: XidSeen | SxidSeen) -> str:
    if isinstance(one, SxidSeen):
        return f"{'fatal ' if one.fatal else ''}SXid {one.sxid} of an NVSwitch"
    return f"XID {one.xid} on {one.gpu or 'an unknown GPU'}" + _and_more(one)


def _and_more(one: XidSeen) -> str:
    often = f", {one.occurrences} times within a day" if one.occurrences > 1 else ""
    return often + (f", the driver asks for recovery action {one.action}" if one.action else "")
