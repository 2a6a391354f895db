"""Hang detection, only if `policy.diagnose`: finds a running job without progress, by its ranks' reports.

A hang is found at a poll while the job runs, so that the attempt can be stopped. `observe.py` asks only for jobs in
RUNNING. The preset `classic` switches hang detection off.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from gpu_recovery.core.attempt import Plan
from gpu_recovery.core.diagnosis.observations import ProgressReport
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.policy import RecoveryPolicy
from gpu_recovery.ports.store import ObservationStore


def describe_hang(store: ObservationStore, policy: RecoveryPolicy, job: Job, plan: Plan, now: datetime) -> str | None:
    """Return a sentence that says how long no rank of a running attempt has made progress.

    The first rank's instance is read first, so that a program that never reports progress costs one read.

    Returns:
        None if a rank makes progress, if the first rank's instance has no progress report, or if the newest progress
        report is older than `heartbeat_stale_s`.
    """
    if not progress_reports(store, job, plan.attempt, plan.instances[:1]):
        return None
    instance_ids = tuple(dict.fromkeys(filter(None, plan.instances)))
    progress = progress_reports(store, job, plan.attempt, instance_ids)
    if not progress:
        return None
    last_s = max(_last_increase(reports) for reports in _by_reporter(progress))
    stalled_s = now.timestamp() - last_s
    latest_age_s = now.timestamp() - max(report.at_s for report in progress)
    if stalled_s < policy.progress_timeout_s or latest_age_s > policy.heartbeat_stale_s:
        return None
    return f"no rank has made progress for {stalled_s:.0f} s, although its instances report"


def progress_reports(
    store: ObservationStore, job: Job, attempt: int, instance_ids: Sequence[str]
) -> list[ProgressReport]:
    """Return the progress reports of the attempt's processes on these instances."""
    buffers = store.observations_of(job.job_id, attempt, instance_ids).values()
    return [
        report
        for buffer in buffers
        for report in buffer.reports
        if isinstance(report, ProgressReport) and report.value is not None
    ]


def _by_reporter(reports: Iterable[ProgressReport]) -> Iterable[list[ProgressReport]]:
    """Group reports by reporter, the oldest first."""
    grouped: dict[str, list[ProgressReport]] = {}
    for report in sorted(reports, key=lambda report: report.at_s):
        grouped.setdefault(report.reporter, []).append(report)
    return grouped.values()


def _last_increase(reports: list[ProgressReport]) -> float:
    """Return the time, in seconds since 1970, at which the progress last exceeded its maximum.

    The first report counts as an increase.

    Args:
        reports: the reports of one reporter, the oldest first.
    """
    best, at_s = None, reports[0].at_s
    for report in reports:
        if report.value is not None and (best is None or report.value > best):
            best, at_s = report.value, report.at_s
    # The buffer has dropped the beginning of a long stall, but each report says how long the stall has lasted.
    return min(at_s, reports[-1].at_s - max(reports[-1].unchanged_s or 0.0, 0.0))
