"""Whether the training of a relaunched job has gone on: by progress reports of its ranks, or by the time it runs."""

from __future__ import annotations

from datetime import UTC, datetime

from gpu_recovery.core.attempt import Plan
from gpu_recovery.core.diagnosis.observations import ProgressReport
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.policy import RecoveryPolicy
from gpu_recovery.execution.hang_detection import progress_reports
from gpu_recovery.ports.store import Store

FORMER_MAX = 5
"""Former attempts whose progress is read."""


def describe_continued(store: Store, policy: RecoveryPolicy, job: Job, plan: Plan, now: float) -> str | None:
    """Return a sentence that says how the training of the attempt has gone on. None if that is not known yet.

    A job that reports progress has gone on with the first report of the attempt. The instance of the first rank is
    read, as in hang detection. A job that reported progress in its last attempt is waited for until
    `progress_timeout_s`. Any other job has gone on after `recovered_after_s` of its run.

    Args:
        now: the time, in seconds since 1970.
    """
    if job.running_at is None:
        return None
    ran_s = now - job.running_at.timestamp()
    reports = progress_reports(store, job, plan.attempt, plan.instances[:1])
    if reports:
        value = max(report.value for report in reports if report.value is not None)
        return f"attempt {plan.attempt} reports progress: {value:g}"
    if ran_s >= policy.progress_timeout_s:
        return f"attempt {plan.attempt} has run for {ran_s:.0f} s, and reports no progress"
    if ran_s < policy.recovered_after_s or _reported_before(store, job, plan):
        return None
    return f"attempt {plan.attempt} has run for {ran_s:.0f} s"


def kept_work(store: Store, job: Job, plan: Plan) -> tuple[datetime | None, datetime | None]:
    """Return the time up to which the work of the former attempts was kept, and that of the first report of progress.

    The attempts since the failure that began the downtime are read, and the attempt that failed then, but no more than
    `FORMER_MAX`. The first time is None if it is not known: the first reports of an attempt that went on from a
    checkpoint may be dropped. The second time is None if the attempt reports no progress.

    Raises:
        RecoveryError: the reports could not be read. Only figures depend on the times, so the caller goes on without.
    """
    with store.reading_for_figures():
        resumed, lost = _progress(store, job, plan)
        if not resumed:
            return None, None
        first = datetime.fromtimestamp(resumed[0].at_s, UTC)
        return (None if lost else _kept_until(store, job, plan, resumed)), first


def _kept_until(store: Store, job: Job, plan: Plan, resumed: list[ProgressReport]) -> datetime | None:
    from gpu_recovery.core.kept_work import kept_until_s  # noqa: PLC0415 - read once, when a downtime ends

    began = job.recovery_since or (job.downtime.since if job.downtime is not None else None)
    former: list[list[ProgressReport]] = []
    for number in range(plan.attempt - 1, max(0, plan.attempt - 1 - FORMER_MAX), -1):
        former_plan = store.load_plan(job.job_id, number)
        reports, lost = _progress(store, job, former_plan) if former_plan is not None else ([], False)
        if not reports:
            continue  # it failed before it had done any work
        former.append(reports)
        if began is None or reports[0].at_s < began.timestamp():
            kept_s = kept_until_s(former, resumed)
            return None if kept_s is None else datetime.fromtimestamp(max(kept_s, job.queued_at.timestamp()), UTC)
        if lost:
            return None
    return None


def _progress(store: Store, job: Job, plan: Plan) -> tuple[list[ProgressReport], bool]:
    """Return the progress reports of an attempt's first instance, the oldest first, and whether some were dropped."""
    buffers = store.observations_of(job.job_id, plan.attempt, plan.instances[:1]).values()
    reports = [report for buffer in buffers for report in buffer.reports if isinstance(report, ProgressReport)]
    known = [report for report in reports if report.value is not None]
    return sorted(known, key=lambda report: report.at_s), any(buffer.lost for buffer in buffers)


def _reported_before(store: Store, job: Job, plan: Plan) -> bool:
    """Return whether the attempt before reported progress."""
    before = store.load_plan(job.job_id, plan.attempt - 1)
    return before is not None and bool(progress_reports(store, job, before.attempt, before.instances[:1]))
