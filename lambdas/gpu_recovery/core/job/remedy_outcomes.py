"""Outcome feedback: whether the remedy of a verdict held, kept with the job.

It has held once an attempt after it has lasted, or the job is done. It has not if the job fails before that for the
same cause, or at the same place; a verdict over the job as a whole is about every place. A failure of something else,
elsewhere, leaves it untold: nobody knows what would have become of it. It is a hint and no proof: a transient fault is
gone whatever was done.

Only what was acted upon is judged: an undecided verdict is told, and the checks decide.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from gpu_recovery.core.diagnosis.taxonomy import JOB, Remedy
from gpu_recovery.core.job.completion import is_stable
from gpu_recovery.core.job.diagnosis_result import DiagnosisResult, PastDiagnosis
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.state_machine import DecisionContext

DIAGNOSES_MAX = 8
_EVERYWHERE = str(JOB)


def open_diagnosis(job: Job) -> DiagnosisResult | None:
    """The last verdict, if its remedy was done and nobody knows yet whether it holds; None if there is none."""
    said = job.verdict_open or job.conclusion
    if said is None or not said.decided or not (said.spares or said.followed or said.remedy is Remedy.CHECK):
        return None
    return None if any(one.attempt == said.attempt for one in job.verdicts) else said


def outcome_of(job: Job, attempt: int) -> PastDiagnosis | None:
    """How the verdict on an attempt turned out, as far as that is known; None if none is known that was acted upon."""
    known = next((one for one in job.verdicts if one.attempt == attempt), None)
    said = open_diagnosis(job)
    if known is None and said is not None and said.attempt == attempt:
        return PastDiagnosis(attempt, said.cause, said.where, None)
    return known


def remedy_held(job: Job) -> dict[str, Any]:
    """The changes once an attempt after the verdict has lasted, or has ended well."""
    said = _of_an_attempt_before(job)
    return {} if said is None else _with_outcome(job, said, True)


def keep_diagnosis_open(job: Job) -> dict[str, Any]:
    """The changes while the checks run that will tell how the verdict on an attempt before has turned out."""
    said = open_diagnosis(job)
    return {} if said is None or said.attempt >= job.attempt else {"verdict_open": said}


def failed_again(
    job: Job, found: DiagnosisResult | None, blamed: Collection[str], given: DecisionContext
) -> dict[str, Any]:
    """The changes once an attempt after the verdict has failed.

    found: what that failure is put down to, None for nothing; blamed: the instances that its checks blame.
    """
    said = _of_an_attempt_before(job)
    if said is None:
        return {}
    if is_stable(job, given):
        return _with_outcome(job, said, True)
    places = _places(job, found, blamed)
    same_cause = found is not None and found.cause is said.cause
    against = said.where == _EVERYWHERE or same_cause or not places.isdisjoint(said.instances)
    return _with_outcome(job, said, False if against else None)


def _of_an_attempt_before(job: Job) -> DiagnosisResult | None:
    said = open_diagnosis(job)
    return said if said is not None and said.attempt < job.attempt else None


def _places(job: Job, found: DiagnosisResult | None, blamed: Collection[str]) -> set[str]:
    """Where the failure is: where its verdict says, else where a check does, or where it ended first."""
    if found is not None and found.decided:
        return set() if found.where == _EVERYWHERE else set(found.instances)
    return {*blamed} or ({job.failure.instance_id} if job.failure is not None else set())


def _with_outcome(job: Job, said: DiagnosisResult, held: bool | None) -> dict[str, Any]:
    verdict = PastDiagnosis(said.attempt, said.cause, said.where, held)
    return {"verdicts": (*job.verdicts, verdict)[-DIAGNOSES_MAX:], "verdict_open": None}
