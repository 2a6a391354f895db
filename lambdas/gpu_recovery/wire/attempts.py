"""The attempts of a job as clients see them (seed 004 §4.2), from its plans, its progress and its history.

An attempt's own record is its plan and the progress of its ranks; when it began and ended is in the job's history,
which forgets the middle of a long life: what is no longer known is None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

from gpu_recovery.core.attempt import AttemptProgress, Plan
from gpu_recovery.core.identifiers import attempt_id
from gpu_recovery.core.job.record import LIVE, RUNS, Job, JobStatus
from gpu_recovery.core.job.spec import Backend
from gpu_recovery.core.task import EndingKind, FailureKind, RankFailure, failure_kind_of
from gpu_recovery.wire.json_body import time_text

SHOWN_MAX = 20
"""The latest attempts, two items each."""
StoredAttempts = Mapping[int, tuple[Plan | None, AttemptProgress | None]]
ReadAttempts = Callable[[str, Sequence[int]], StoredAttempts]


class AttemptStatus(StrEnum):
    """How an attempt stands, in the words that Ray has for its jobs."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    STOPPED = "STOPPED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"


EXPLANATORY_ENDINGS = frozenset({EndingKind.SHORT_OF_RESOURCES, EndingKind.INTERRUPTED})
"""Endings that are nobody's own and say all the same why the attempt did not come to its end."""


def attempt_views(job: Job, read: ReadAttempts) -> list[dict[str, Any]]:
    """The latest attempts of a job, the oldest first. read: plans and progress of some attempts of a job."""
    numbers = range(max(1, job.attempt - SHOWN_MAX + 1), job.attempt + 1)
    kept = read(job.job_id, numbers) if numbers else {}
    return [attempt_view(job, number, *kept.get(number, (None, None))) for number in numbers]


def attempt_view(job: Job, number: int, plan: Plan | None, progress: AttemptProgress | None) -> dict[str, Any]:
    """One attempt, from its plan and its progress, as far as they are kept."""
    began, ended = _first(job, number, RUNS), _end(job, number)
    failure = progress.failure if progress is not None else None
    if failure is None and number == job.attempt:
        failure = job.failure
    told = failure is not None and (failure.ending.is_own or failure.ending.kind in EXPLANATORY_ENDINGS)
    status = _status(job, number, began, ended, failed=told)
    own = failure if status is AttemptStatus.FAILED else None
    where: dict[str, Any] = {"instances": list(plan.instances) if plan else _instances(job, number)}
    if job.spec.backend is Backend.RAY:
        where = {"submission_id": attempt_id(job.job_id, number)}
    return {
        "attempt": number,
        "attempt_id": attempt_id(job.job_id, number),
        "status": status.value,
        "started_at": time_text(began),
        "ended_at": time_text(ended),
        "exit_code": own.ending.exit_code if own else 0 if status is AttemptStatus.SUCCEEDED else None,
        "failure_kind": _kind(own, progress).value if own else None,
        "message": own.ending.sentence if own else None,
        "counted": _counted(job, number, ended),
        **where,
    }


def _kind(own: RankFailure, progress: AttemptProgress | None) -> FailureKind:
    """By the end of the rank, unless a check has since found a machine to blame."""
    checks = progress.checked.values() if progress is not None else ()
    return FailureKind.HARDWARE if any(one.outcome.blames_hardware for one in checks) else failure_kind_of(own.ending)


def _instances(job: Job, number: int) -> list[str]:
    return list(job.instances) if number == job.attempt else []


def _first(job: Job, number: int, statuses: Iterable[JobStatus]) -> datetime | None:
    """When the attempt first was in one of `statuses`."""
    return next((one.at for one in job.history if one.attempt == number and one.after in tuple(statuses)), None)


def _end(job: Job, number: int) -> datetime | None:
    """When the last rank of the attempt had ended, or the next attempt began for all that is known."""
    if number == job.attempt and job.status in LIVE:
        return None
    over = (one.at for one in job.history if one.attempt == number and one.before in LIVE and one.after not in LIVE)
    return next(over, None)


def _status(job: Job, number: int, began: datetime | None, ended: datetime | None, *, failed: bool) -> AttemptStatus:
    if number == job.attempt and job.status in LIVE:
        return AttemptStatus.RUNNING if job.status in RUNS or began else AttemptStatus.PENDING
    if number == job.attempt and job.status is JobStatus.SUCCEEDED:
        return AttemptStatus.SUCCEEDED
    return AttemptStatus.FAILED if failed else AttemptStatus.STOPPED


def _counted(job: Job, number: int, ended: datetime | None) -> bool | None:
    """Whether it counts against `attempts_max`; None where that is known of all attempts together only."""
    if number == job.attempt and job.status in LIVE:
        return None
    if not any(job.attempts_uncounted.values()):
        return True
    return False if job.attempts_counted == 0 else None
