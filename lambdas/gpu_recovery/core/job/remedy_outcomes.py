"""Outcome feedback: whether the remedy of a diagnosis result worked, saved with the job.

A remedy held if a later attempt had a stable run, or if the job succeeded. It did not hold if the job failed earlier
for the same cause or at the same place; a diagnosis of the job as a whole covers every place. After a failure of
another cause at another place the outcome is unknown. The outcome is a hint and no proof, because a transient fault
disappears without any remedy.

Only results that were acted upon have an outcome. An undecided result is only reported, and the checks decide.
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
"""Number of diagnosis outcomes that a job's record saves, the newest."""
_EVERYWHERE = str(JOB)


def open_diagnosis(job: Job) -> DiagnosisResult | None:
    """Return the last diagnosis result if its remedy was carried out and its outcome is unknown, else None."""
    result = job.verdict_open or job.conclusion
    if result is None or not result.decided or not (result.spares or result.followed or result.remedy is Remedy.CHECK):
        return None
    return None if any(past.attempt == result.attempt for past in job.verdicts) else result


def outcome_of(job: Job, attempt: int) -> PastDiagnosis | None:
    """Return the outcome of an attempt's diagnosis as far as it is known; None if no diagnosis of it was acted upon."""
    known = next((past for past in job.verdicts if past.attempt == attempt), None)
    result = open_diagnosis(job)
    if known is None and result is not None and result.attempt == attempt:
        return PastDiagnosis(attempt, result.cause, result.where, None)
    return known


def remedy_held(job: Job) -> dict[str, Any]:
    """Return the changes when an attempt after the diagnosis had a stable run or succeeded."""
    result = _of_earlier_attempt(job)
    return {} if result is None else _with_outcome(job, result, True)


def keep_diagnosis_open(job: Job) -> dict[str, Any]:
    """Return the changes that keep the earlier diagnosis open until the running checks show its outcome."""
    result = open_diagnosis(job)
    return {} if result is None or result.attempt >= job.attempt else {"verdict_open": result}


def failed_again(
    job: Job, diagnosis: DiagnosisResult | None, blamed: Collection[str], context: DecisionContext
) -> dict[str, Any]:
    """Return the changes when an attempt after the diagnosis has failed.

    Args:
        diagnosis: the diagnosis result of the new failure, None if it has none.
        blamed: the instances that the checks of the new failure blame.
    """
    earlier = _of_earlier_attempt(job)
    if earlier is None:
        return {}
    if is_stable(job, context):
        return _with_outcome(job, earlier, True)
    places = _places(job, diagnosis, blamed)
    same_cause = diagnosis is not None and diagnosis.cause is earlier.cause
    against = earlier.where == _EVERYWHERE or same_cause or not places.isdisjoint(earlier.instances)
    return _with_outcome(job, earlier, False if against else None)


def _of_earlier_attempt(job: Job) -> DiagnosisResult | None:
    """Return the open diagnosis if it is about an earlier attempt, else None."""
    result = open_diagnosis(job)
    return result if result is not None and result.attempt < job.attempt else None


def _places(job: Job, diagnosis: DiagnosisResult | None, blamed: Collection[str]) -> set[str]:
    """Return the instances of the failure.

    They are those of its diagnosis if that is decided, else those that its checks find faulty, else the first failed
    instance.
    """
    if diagnosis is not None and diagnosis.decided:
        return set() if diagnosis.where == _EVERYWHERE else set(diagnosis.instances)
    return {*blamed} or ({job.failure.instance_id} if job.failure is not None else set())


def _with_outcome(job: Job, result: DiagnosisResult, held: bool | None) -> dict[str, Any]:
    """Return the changes that save the outcome and close the diagnosis."""
    outcome = PastDiagnosis(result.attempt, result.cause, result.where, held)
    return {"verdicts": (*job.verdicts, outcome)[-DIAGNOSES_MAX:], "verdict_open": None}
