"""Whether a gang that runs gets on: by what its ranks say of their own progress, while it can still be ended."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from gpu_recovery.core.attempt import Plan
from gpu_recovery.core.diagnosis.observations import ProgressReport
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.policy import RecoveryPolicy
from gpu_recovery.ports.store import ObservationStore


def describe_hang(store: ObservationStore, policy: RecoveryPolicy, job: Job, plan: Plan, now: datetime) -> str | None:
    """Since when no rank of a running attempt gets on, in a sentence; None while one does, or nobody says.

    One item is read as long as the first rank's machine says nothing of progress, which is so where no program does.
    """
    if not _progress_reports(store, job, plan.attempt, plan.instances[:1]):
        return None
    names = tuple(dict.fromkeys(filter(None, plan.instances)))
    said = _progress_reports(store, job, plan.attempt, names)
    if not said:
        return None
    last_s = max(_last_increase(ones) for ones in _by_reporter(said))
    stands_s = now.timestamp() - last_s
    fresh_s = now.timestamp() - max(one.at_s for one in said)
    if stands_s < policy.progress_timeout_s or fresh_s > policy.heartbeat_stale_s:
        return None
    return f"no rank has got on for {stands_s:.0f} s, though its machines are heard of"


def _progress_reports(
    store: ObservationStore, job: Job, attempt: int, instance_ids: Sequence[str]
) -> list[ProgressReport]:
    """What the processes of the attempt on these instances have said of how far they are."""
    kept = store.observations_of(job.job_id, attempt, instance_ids).values()
    return [one for found in kept for one in found.reports if isinstance(one, ProgressReport) and one.value is not None]


def _by_reporter(said: Iterable[ProgressReport]) -> Iterable[list[ProgressReport]]:
    found: dict[str, list[ProgressReport]] = {}
    for one in sorted(said, key=lambda one: one.at_s):
        found.setdefault(one.reporter, []).append(one)
    return found.values()


def _last_increase(said: list[ProgressReport]) -> float:
    """When its progress was last greater than ever before; its first word is a rise."""
    best, at_s = None, said[0].at_s
    for one in said:
        if one.value is not None and (best is None or one.value > best):
            best, at_s = one.value, one.at_s
    # Of a long stall its beginning is kept no more, but each word says how long it has lasted.
    return min(at_s, said[-1].at_s - max(said[-1].unchanged_s or 0.0, 0.0))
