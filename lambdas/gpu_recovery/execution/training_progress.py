"""Whether the training of a relaunched job has gone on: by progress reports of its ranks, or by the time it runs."""

from __future__ import annotations

from datetime import UTC, datetime

from gpu_recovery.core.attempt import Plan
from gpu_recovery.core.errors import RecoveryError
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.kept_work import kept_until_s
from gpu_recovery.core.policy import RecoveryPolicy
from gpu_recovery.execution.hang_detection import progress_reports
from gpu_recovery.ports.store import Store

FORMER_MAX = 5
"""Former attempts among which the last that reported progress is looked for."""


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


def kept_until(store: Store, job: Job, plan: Plan) -> datetime | None:
    """Return the time up to which the work of the job's former attempts was kept; None if it is not known.

    The former attempt is the last that reported progress, among the last `FORMER_MAX`. Only figures depend on the
    time, so reports that cannot be read count as unknown.
    """
    try:
        resumed = progress_reports(store, job, plan.attempt, plan.instances[:1])
        for number in range(plan.attempt - 1, max(0, plan.attempt - 1 - FORMER_MAX), -1) if resumed else ():
            former = store.load_plan(job.job_id, number)
            if former is not None and (reports := progress_reports(store, job, number, former.instances[:1])):
                kept_s = kept_until_s(reports, resumed)
                return None if kept_s is None else datetime.fromtimestamp(max(kept_s, job.queued_at.timestamp()), UTC)
    except RecoveryError:
        pass
    return None


def _reported_before(store: Store, job: Job, plan: Plan) -> bool:
    """Return whether the attempt before reported progress."""
    before = store.load_plan(job.job_id, plan.attempt - 1)
    return before is not None and bool(progress_reports(store, job, before.attempt, before.instances[:1]))
