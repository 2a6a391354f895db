"""Stalls in an agent report: the event that brings the poll of a job forward because its training has stopped.

A hang is found at a poll, and a running job is polled every two minutes. So the agents of the first ranks say when the
progress of their process stands still for longer than its progress timeout. The poll then asks about every rank. If
the activity of the rank confirms a hang, the shorter timeout of confirmed hangs counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

from gpu_recovery.core import events
from gpu_recovery.core.diagnosis.observations import ProgressReport
from gpu_recovery.core.hang_signals import rank_confirms
from gpu_recovery.core.heartbeat import AgentReport, RunningRank
from gpu_recovery.core.policy import RecoveryPolicy
from gpu_recovery.core.progress_timeout import progress_timeout
from gpu_recovery.core.rank_activity import activity_of

REPORTING_RANKS = 2
"""Ranks whose agents report a stall: not all, because a gang of thousands stands still at the same moment."""


def stall_events(
    report: AgentReport,
    ranks: Mapping[int, RunningRank],
    policy: RecoveryPolicy,
    now: datetime,
    activity: Mapping[str, str],
) -> Iterator[tuple[str, events.StallReported]]:
    """Yield the job and the event of each first rank on the instance whose newest progress report shows a stall.

    Args:
        report: the agent report.
        ranks: the reported ranks that are known on the instance.
        activity: the activity of these ranks, by running log id as text.
    """
    if not policy.diagnose:
        return
    for log, rank in ranks.items():
        if rank.rank >= REPORTING_RANKS or rank.attempt == 0:
            continue
        newest = _newest(report, rank)
        if newest is None or newest.unchanged_s is None:
            continue
        own = activity_of(activity, log)
        confirmed = own is not None and rank_confirms(own, newest.unchanged_s)
        if newest.unchanged_s >= progress_timeout([newest], policy, confirmed=confirmed).seconds:
            yield (
                rank.job_id,
                events.StallReported(
                    at=now,
                    attempt=rank.attempt,
                    instance_id=report.instance_id,
                    unchanged_s=newest.unchanged_s,
                    is_early=newest.unchanged_s < progress_timeout([newest], policy).seconds,
                ),
            )


def _newest(report: AgentReport, rank: RunningRank) -> ProgressReport | None:
    """Return the process of the rank that got on last, by its newest report; None if no process reports progress."""
    newest: dict[str, tuple[float, ProgressReport]] = {}
    for received in report.observations:
        progress = received.report
        mine = received.job_id == rank.job_id and received.attempt in (0, rank.attempt)
        if not mine or not isinstance(progress, ProgressReport) or progress.value is None:
            continue
        known = newest.get(progress.reporter)
        if known is None or received.age_s < known[0]:
            newest[progress.reporter] = received.age_s, progress
    return min(
        (progress for _, progress in newest.values()), key=lambda progress: progress.unchanged_s or 0.0, default=None
    )
