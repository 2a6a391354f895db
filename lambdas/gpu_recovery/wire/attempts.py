"""Attempts of a job as API clients see them, from plans, progress and history.

Plan and progress are the record of an attempt. Its begin and end are in the job's history, which drops the middle of a
long life: unknown times are None.
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
"""Attempts that are shown at most, from the latest. Each costs a read of two items."""
StoredAttempts = Mapping[int, tuple[Plan | None, AttemptProgress | None]]
"""Plan and progress by attempt number; None for a part that is not stored."""
ReadAttempts = Callable[[str, Sequence[int]], StoredAttempts]
"""Reads the stored attempts with these numbers of a job."""


class AttemptStatus(StrEnum):
    """Status of an attempt, in the words of Ray for its jobs."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    STOPPED = "STOPPED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"


EXPLANATORY_ENDINGS = frozenset({EndingKind.SHORT_OF_RESOURCES, EndingKind.INTERRUPTED})
"""Endings that no rank caused itself, but that explain why the attempt did not complete."""


def attempt_views(job: Job, read: ReadAttempts) -> list[dict[str, Any]]:
    """Return the latest attempts of a job, the oldest first.

    Args:
        read: returns plans and progress of some attempts of a job.
    """
    numbers = range(max(1, job.attempt - SHOWN_MAX + 1), job.attempt + 1)
    stored = read(job.job_id, numbers) if numbers else {}
    return [attempt_view(job, number, *stored.get(number, (None, None))) for number in numbers]


def attempt_view(job: Job, number: int, plan: Plan | None, progress: AttemptProgress | None) -> dict[str, Any]:
    """Return one attempt, as far as its plan and progress are stored."""
    began, ended = _first_entered(job, number, RUNS), _ended_at(job, number)
    failure = progress.failure if progress is not None else None
    if failure is None and number == job.attempt:
        failure = job.failure
    has_failed = failure is not None and (failure.ending.is_own or failure.ending.kind in EXPLANATORY_ENDINGS)
    status = _status(job, number, began, ended, failed=has_failed)
    shown_failure = failure if status is AttemptStatus.FAILED else None
    location: dict[str, Any] = {"instances": list(plan.instances) if plan else _instances(job, number)}
    if job.spec.backend is Backend.RAY:
        location = {"submission_id": attempt_id(job.job_id, number)}
    return {
        "attempt": number,
        "attempt_id": attempt_id(job.job_id, number),
        "status": status.value,
        "started_at": time_text(began),
        "ended_at": time_text(ended),
        "exit_code": shown_failure.ending.exit_code
        if shown_failure
        else 0
        if status is AttemptStatus.SUCCEEDED
        else None,
        "failure_kind": _failure_kind(shown_failure, progress).value if shown_failure else None,
        "message": shown_failure.ending.sentence if shown_failure else None,
        "counted": _counted(job, number, ended),
        **location,
    }


def _failure_kind(failure: RankFailure, progress: AttemptProgress | None) -> FailureKind:
    """Return the kind of a failure: HARDWARE if a check finds the instance faulty, else by the end of the rank."""
    checks = progress.checked.values() if progress is not None else ()
    return (
        FailureKind.HARDWARE
        if any(check.outcome.blames_hardware for check in checks)
        else failure_kind_of(failure.ending)
    )


def _instances(job: Job, number: int) -> list[str]:
    return list(job.instances) if number == job.attempt else []


def _first_entered(job: Job, number: int, statuses: Iterable[JobStatus]) -> datetime | None:
    """Return when the attempt first was in one of `statuses`."""
    return next((entry.at for entry in job.history if entry.attempt == number and entry.after in tuple(statuses)), None)


def _ended_at(job: Job, number: int) -> datetime | None:
    """Return when the last rank of the attempt had ended, or when the next attempt began if only that is known."""
    if number == job.attempt and job.status in LIVE:
        return None
    ends = (
        entry.at
        for entry in job.history
        if entry.attempt == number and entry.before in LIVE and entry.after not in LIVE
    )
    return next(ends, None)


def _status(job: Job, number: int, began: datetime | None, ended: datetime | None, *, failed: bool) -> AttemptStatus:
    if number == job.attempt and job.status in LIVE:
        return AttemptStatus.RUNNING if job.status in RUNS or began else AttemptStatus.PENDING
    if number == job.attempt and job.status is JobStatus.SUCCEEDED:
        return AttemptStatus.SUCCEEDED
    return AttemptStatus.FAILED if failed else AttemptStatus.STOPPED


def _counted(job: Job, number: int, ended: datetime | None) -> bool | None:
    """Return whether the attempt counts against `attempts_max`.

    Returns:
        None if that is known only for all attempts together.
    """
    if number == job.attempt and job.status in LIVE:
        return None
    if not any(job.attempts_uncounted.values()):
        return True
    return False if job.attempts_counted == 0 else None
