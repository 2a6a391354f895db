"""Hang detection by the activity of the ranks, as their node agents report it.

`suspected_hang` judges a job that reports no progress, only if `policy.hang_without_progress` asks for it.
`is_confirmed_hang` asks whether the activity agrees with a hang that the progress reports show.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from gpu_recovery.core import events
from gpu_recovery.core.attempt import Plan
from gpu_recovery.core.hang_signals import is_confirmed, rank_confirms, signs_of_hang
from gpu_recovery.core.heartbeat import running_log_id
from gpu_recovery.core.job.hang_stops import backoffs
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.policy import RecoveryPolicy, duration
from gpu_recovery.core.progress_timeout import QUIET_S
from gpu_recovery.core.rank_activity import RankActivity, activity_of
from gpu_recovery.execution.hang_detection import progress_reports
from gpu_recovery.ports.store import Store


def suspected_hang(
    store: Store, policy: RecoveryPolicy, job: Job, plan: Plan, now: datetime
) -> events.HangSuspected | None:
    """Return the event of a running attempt that its agents show to hang; None if they do not.

    The first rank's instance is read first, so that a job that trains costs one read. The agent of each rank must have
    reported the activity of this attempt within `suspect_s`.
    """
    instances = plan.instances
    if job.running_at is None or not all(instances):
        return None
    first = _activities(store, policy, job, plan, (instances[0],), now).get(0)
    if first is None or first.quiet_s < QUIET_S or progress_reports(store, job, plan.attempt, instances[:1]):
        return None
    known = _activities(store, policy, job, plan, tuple(dict.fromkeys(instances)), now)
    ranks = {rank: known.get(rank) for rank in range(len(instances))}
    signs = signs_of_hang(ranks, backoffs(job, policy), job.spec.progress_timeout_s)
    if signs is None:
        return None
    suspect = "" if signs.suspect is None else instances[signs.suspect]
    sentence = f"{signs.sentence}; rank {signs.suspect} is on {suspect}" if suspect else signs.sentence
    since = now - timedelta(seconds=signs.quiet_s)
    return events.HangSuspected(at=now, attempt=plan.attempt, sentence=sentence, since=since, instance_id=suspect)


def is_confirmed_hang(
    store: Store, policy: RecoveryPolicy, job: Job, plan: Plan, since: datetime, now: datetime
) -> bool:
    """Return whether the activity of every rank shows a hang, too.

    The first rank's instance is read first, so that a gang whose first rank works costs one read.

    Args:
        since: time of the last progress.
        now: the present time.
    """
    stalled_s = (now - since).total_seconds()
    first = _activities(store, policy, job, plan, plan.instances[:1], now).get(0) if plan.instances[0] else None
    if first is None or not rank_confirms(first, stalled_s):
        return False
    known = _activities(store, policy, job, plan, tuple(dict.fromkeys(filter(None, plan.instances))), now)
    ranks = {rank: known.get(rank) for rank in range(len(plan.instances))}
    return is_confirmed(ranks, stalled_s)


def _activities(
    store: Store, policy: RecoveryPolicy, job: Job, plan: Plan, instance_ids: tuple[str, ...], now: datetime
) -> dict[int, RankActivity | None]:
    """Return the activity of the ranks on these instances; None where no recent heartbeat has it."""
    beats = store.load_heartbeats(instance_ids)
    found: dict[int, RankActivity | None] = {}
    for rank, instance_id in enumerate(plan.instances):
        beat = beats.get(instance_id)
        if beat is not None and now - beat.seen_at <= duration(policy.suspect_s):
            found[rank] = activity_of(beat.activity, running_log_id(job.job_id, plan.attempt, rank))
    return found
