"""Quiet ranks in an agent report: what a heartbeat keeps of them, and the event that brings the poll forward.

The event comes only if `policy.hang_without_progress` asks for it. As for stalls (`stalls.py`), the agents of the first
ranks tell it, and the poll asks about every rank. The heartbeat keeps the activity if the policy reads evidence: it may
confirm a hang that the progress reports show.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

from gpu_recovery.core import events
from gpu_recovery.core.diagnosis.observations import ProgressReport
from gpu_recovery.core.hang_signals import rank_limit_s
from gpu_recovery.core.heartbeat import AgentReport, RunningRank
from gpu_recovery.core.policy import RecoveryPolicy
from gpu_recovery.core.progress_timeout import is_judged
from gpu_recovery.core.rank_activity import activity_of
from gpu_recovery.node_api.stalls import REPORTING_RANKS


def known_activity(report: AgentReport, ranks: Mapping[int, RunningRank], policy: RecoveryPolicy) -> dict[str, str]:
    """Return the activity of the known ranks of a report, by running log id as text.

    A policy that reads no evidence (`diagnose`) does not use it.
    """
    if not policy.diagnose:
        return {}
    logs: dict[tuple[str, int, int], int] = {}
    for log, rank in ranks.items():  # a rank that a user started reports attempt 0
        logs[rank.job_id, rank.rank, 0] = logs[rank.job_id, rank.rank, rank.attempt] = log
    return {
        str(logs[of_rank]): reported.activity
        for reported in report.running or ()
        if reported.activity
        and not reported.held
        and (of_rank := (reported.job_id, reported.rank, reported.attempt)) in logs
    }


def quiet_events(
    report: AgentReport, ranks: Mapping[int, RunningRank], policy: RecoveryPolicy, now: datetime
) -> Iterator[tuple[str, events.StallReported]]:
    """Yield the job and the event of each first rank that is quiet for too long and reports no progress.

    Args:
        report: the agent report.
        ranks: the reported ranks that are known on the instance.
    """
    texts = known_activity(report, ranks, policy) if is_judged(policy) else {}
    for log, rank in ranks.items():
        activity = activity_of(texts, log)
        if rank.rank >= REPORTING_RANKS or rank.attempt == 0 or activity is None or _progresses(report, rank):
            continue
        if activity.quiet_s >= rank_limit_s(activity):
            yield (
                rank.job_id,
                events.StallReported(
                    at=now,
                    attempt=rank.attempt,
                    instance_id=report.instance_id,
                    unchanged_s=activity.quiet_s,
                    is_quiet=True,
                ),
            )


def _progresses(report: AgentReport, rank: RunningRank) -> bool:
    """Return whether the report has the progress of a process of the rank."""
    return any(
        isinstance(received.report, ProgressReport)
        and received.report.value is not None
        and received.job_id == rank.job_id
        and received.attempt in (0, rank.attempt)
        for received in report.observations
    )
