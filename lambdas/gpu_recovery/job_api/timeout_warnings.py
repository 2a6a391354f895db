"""Warnings about timeouts of a job that do not fit each other, as the answers about the job show them.

The explanation of a running job takes the variables that rank 0 really has in place of those that were known at
submission. The other answers do not: they are asked for often, and would cost one more read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpu_recovery.core.diagnosis.observations import TimeoutsReport
from gpu_recovery.core.job.record import Job, JobStatus
from gpu_recovery.core.job.timeout_order import timeout_problems
from gpu_recovery.core.policy import TimeoutOrder
from gpu_recovery.recovery import Recovery

RANKS_RUN = (JobStatus.RUNNING, JobStatus.LOST)
"""Statuses in which rank 0 runs and may have reported its variables."""


def timeout_warnings(recovery: Recovery, job: Job, observed: Mapping[str, int] | None = None) -> list[dict[str, Any]]:
    """Return each pair of timeouts of the job that does not fit.

    Args:
        recovery: the loop.
        job: the job.
        observed: the timeouts of a running rank, see `observed_timeouts`; None if they were not read.
    """
    return [
        {
            "inner": problem.inner,
            "inner_s": problem.inner_s,
            "outer": problem.outer,
            "outer_s": problem.outer_s,
            "sentence": problem.sentence,
        }
        for problem in timeout_problems(job.spec, recovery.policy, observed)
    ]


def observed_timeouts(recovery: Recovery, job: Job) -> dict[str, int]:
    """Return the timeouts that rank 0 of a running job has reported last; {} if there are none. Costs one read."""
    if job.status not in RANKS_RUN or not any(job.instances[:1]) or recovery.policy.timeout_order is TimeoutOrder.OFF:
        return {}
    buffers = recovery.store.observations_of(job.job_id, job.attempt, job.instances[:1]).values()
    reports = [report for buffer in buffers for report in buffer.reports if isinstance(report, TimeoutsReport)]
    newest = max(reports, key=lambda report: report.at_s, default=None)
    return {} if newest is None else {variable.name: variable.value for variable in newest.variables}
