"""Hang detection, only if `policy.diagnose`: finds a running job without progress, by its ranks' reports.

A hang is found at a poll while the job runs, so that the attempt can be stopped. `observe.py` asks only for jobs in
RUNNING. The preset `classic` switches hang detection off. A rank that reports a stall brings the poll forward
(`node_api/stalls.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta

from gpu_recovery.core.attempt import Plan
from gpu_recovery.core.diagnosis.observations import ProgressReport
from gpu_recovery.core.job.hang_stops import backoffs
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.lazy_dataclass import frozen_dataclass
from gpu_recovery.core.liveness import is_fresh
from gpu_recovery.core.policy import RecoveryPolicy, duration
from gpu_recovery.core.progress_timeout import FORMER_MAX, ProgressTimeout, progress_timeout
from gpu_recovery.ports.heartbeats import HeartbeatStore
from gpu_recovery.ports.store import ObservationStore, Store

ALIVE_S = 45.0
"""Seconds before the newest report of a gang. A process without a report since then has ended. Processes report every
10 s."""


@frozen_dataclass()
class Hang:
    """A hang of a gang.

    sentence: why the attempt counts as hung.
    since: time of its last progress.
    progress: the furthest progress value of a rank, as a whole number; None if no rank reports progress.
    confirmed: whether the activity of every rank shows a hang, too.
    """

    sentence: str
    since: datetime
    progress: int | None = None
    confirmed: bool = False


def find_hang(
    store: Store,
    policy: RecoveryPolicy,
    job: Job,
    plan: Plan,
    now: datetime,
    is_confirmed: Callable[[datetime], bool] = lambda since: False,
) -> Hang | None:
    """Return the hang of a running attempt; None if it does not count as hung.

    A job that reports progress is judged by its progress, another job by the idleness of its GPUs. The first rank's
    instance is read first, so that a program that never reports progress costs two reads.

    Args:
        is_confirmed: whether the activity of every rank shows a hang since the time of the last progress. It is asked
            only about a gang that has made no progress for the shorter timeout of confirmed hangs, and not in the last
            attempt of a job, which has the whole timeout.

    Returns:
        None if a rank makes progress, or if the newest progress report is older than `heartbeat_stale_s`.
    """
    if not progress_reports(store, job, plan.attempt, plan.instances[:1]):
        return find_idleness(store, policy, job, plan, now)
    instance_ids = tuple(dict.fromkeys(filter(None, plan.instances)))
    progress = progress_reports(store, job, plan.attempt, instance_ids)
    if not progress:
        return None
    stalled_s = now.timestamp() - max(_last_increase(reports) for reports in _by_reporter(progress))
    latest_age_s = now.timestamp() - max(report.at_s for report in progress)
    newest, own_s = newest_by_reporter(progress), job.spec.progress_timeout_s
    stops = backoffs(job, policy)
    can_shorten = job.attempts_left(policy)
    least = progress_timeout(newest, policy, own_s, stops, confirmed=can_shorten)
    if stalled_s < least.seconds or latest_age_s > policy.heartbeat_stale_s:
        return None
    since = now - timedelta(seconds=stalled_s)
    confirmed = is_confirmed(since)
    if not confirmed and stalled_s < progress_timeout(newest, policy, own_s, stops).seconds:
        return None
    slowest_s = _former_slowest_s(store, job, plan)
    limit = progress_timeout(newest, policy, own_s, stops, slowest_s)
    least = progress_timeout(newest, policy, own_s, stops, slowest_s, confirmed=confirmed)
    if stalled_s < least.seconds:
        return None
    if stalled_s < limit.seconds:
        limit = ProgressTimeout(least.seconds, f"{least.reason}, because the node agents see every rank wait")
    sentence = f"no rank has made progress for {stalled_s:.0f} s, although its instances report; {limit.reason}"
    furthest = max(report.value for report in progress if report.value is not None)
    return Hang(sentence, since, int(furthest), confirmed)


def find_idleness(store: HeartbeatStore, policy: RecoveryPolicy, job: Job, plan: Plan, now: datetime) -> Hang | None:
    """Return a hang if every GPU of the attempt has been idle for `idle_timeout_s` after it has worked, else None.

    An agent that does not report the utilisation of its GPUs, or that is silent, prevents the conclusion.
    """
    instance_ids = tuple(dict.fromkeys(plan.instances))
    if job.running_at is None or not all(instance_ids):
        return None
    idle_since: list[datetime] = []
    for part in (instance_ids[:1], instance_ids[1:]):  # one read while the first instance works
        beats = store.load_heartbeats(part) if part else {}
        for instance_id in part:
            beat = beats.get(instance_id)
            if beat is None or beat.idle_since is None or not is_fresh(beat.seen_at, now, policy):
                return None
            idle_since.append(beat.idle_since)
        if min(idle_since) <= job.running_at or now - max(idle_since) < duration(policy.idle_timeout_s):
            return None
    idle_s = (now - max(idle_since)).total_seconds()
    sentence = f"every GPU has been idle for {idle_s:.0f} s after it had worked, and no rank reports progress"
    return Hang(sentence, max(idle_since))


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


def _former_slowest_s(store: Store, job: Job, plan: Plan) -> float:
    """Return the longest step in seconds that the first rank reported in the former attempts; 0 if none is known."""
    slowest_s = 0.0
    for number in range(plan.attempt - 1, max(0, plan.attempt - 1 - FORMER_MAX), -1):
        former = store.load_plan(job.job_id, number)
        reports = progress_reports(store, job, number, former.instances[:1]) if former is not None else []
        slowest_s = max([slowest_s, *(report.slowest_s or 0.0 for report in reports)])
    return slowest_s


def newest_by_reporter(reports: Iterable[ProgressReport]) -> list[ProgressReport]:
    """Return the newest report of each process that was alive when the last report of the gang was made."""
    newest = [of_process[-1] for of_process in _by_reporter(reports)]
    latest_s = max((report.at_s for report in newest), default=0.0)
    return [report for report in newest if latest_s - report.at_s <= ALIVE_S]


def _by_reporter(reports: Iterable[ProgressReport]) -> list[list[ProgressReport]]:
    """Group reports by reporter, the oldest first."""
    grouped: dict[str, list[ProgressReport]] = {}
    for report in sorted(reports, key=lambda report: report.at_s):
        grouped.setdefault(report.reporter, []).append(report)
    return list(grouped.values())


def _last_increase(reports: list[ProgressReport]) -> float:
    """Return the time, in seconds since 1970, at which the progress last exceeded its maximum.

    The first report counts as an increase. So does a report out of a phase that the program has marked as a pause,
    once the phase is over.

    Args:
        reports: the reports of one reporter, the oldest first.
    """
    best, at_s = None, reports[0].at_s
    pauses_count = not reports[-1].paused
    for report in reports:
        if report.value is not None and (best is None or report.value > best):
            best, at_s = report.value, report.at_s
        elif report.paused and pauses_count:
            at_s = report.at_s
    # The buffer has dropped the beginning of a long stall, but each report says how long the stall has lasted.
    return min(at_s, reports[-1].at_s - max(reports[-1].unchanged_s or 0.0, 0.0))
