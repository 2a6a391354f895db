"""Answers of the route of diagnoses. The route imports this module at its first request.

No other route needs the rules of diagnosis and the patterns of log lines. They would take a tenth of a start.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpu_recovery.core.diagnosis.case import History
from gpu_recovery.core.diagnosis.case_file import CaseInvalid, read_case
from gpu_recovery.core.diagnosis.diagnose import Diagnosis, diagnose
from gpu_recovery.core.diagnosis.report_text import Language, NextStep, as_document, outcome_line, report_text
from gpu_recovery.core.errors import RayUnreachable
from gpu_recovery.core.job.diagnosis_result import PastDiagnosis
from gpu_recovery.core.job.record import TERMINAL, Job, JobStatus
from gpu_recovery.core.job.remedy_outcomes import outcome_of
from gpu_recovery.core.job.spec import Backend
from gpu_recovery.core.logs.classify import classify
from gpu_recovery.core.logs.findings_document import findings_document
from gpu_recovery.execution.evidence import LogTail, collect_evidence, thresholds_of
from gpu_recovery.job_api.dependencies import Dependencies
from gpu_recovery.job_api.request import Request
from gpu_recovery.job_api.response import ApiError, ApiResponse
from gpu_recovery.wire.json_body import read_json

_ATTEMPT_FIELDS, _CASE_FIELDS = frozenset({"job_id", "attempt"}), frozenset({"reports", "workers", "at_s"})
_LOG_FIELDS = frozenset({"log", "name"})
LOG_NAME_CHARACTERS_MAX = 255
"""Upper bound of the characters of the name of a log."""


def answer(dependencies: Dependencies, request: Request) -> ApiResponse:
    """Answer a request for a diagnosis.

    Raises:
        ApiError: as `routes.diagnoses.make_diagnosis` says.
    """
    document = _document(request)
    if "job_id" in document:
        return _diagnose_attempt(dependencies, document)
    if "log" in document:
        return _read_log(document)
    try:
        case = read_case(document)
    except CaseInvalid as error:
        raise ApiError(400, "bad_case", "Not a case", error.detail, error.field) from error
    diagnosis = diagnose(
        case.observations, case.topology, History(), case.at_s, thresholds_of(dependencies.recovery.policy)
    )
    return ApiResponse(200, _view(diagnosis, None, None, {}))


def _document(request: Request) -> dict[str, Any]:
    try:
        document = read_json(request.text())
    except (ValueError, RecursionError) as error:
        raise ApiError(400, "unreadable_body", "Not JSON", str(error)[:500], "body") from error
    if not isinstance(document, dict):
        raise ApiError(400, "bad_case", "Not a case", "must be an object", "body")
    allowed = _ATTEMPT_FIELDS if "job_id" in document else _LOG_FIELDS if "log" in document else _CASE_FIELDS
    for name in document:
        if name not in allowed:
            detail = f"is unknown; the fields are {', '.join(sorted(allowed))}"
            raise ApiError(400, "bad_case", "Not a case", detail, name)
    return document


def _read_log(document: dict[str, Any]) -> ApiResponse:
    log, name = document["log"], document.get("name", "")
    if not isinstance(log, str):
        raise ApiError(400, "bad_log", "Not a log", "must be a text", "log")
    if not isinstance(name, str) or len(name) > LOG_NAME_CHARACTERS_MAX or not name.isprintable():
        detail = f"must be a line of at most {LOG_NAME_CHARACTERS_MAX} characters"
        raise ApiError(400, "bad_log", "Not a log", detail, "name")
    return ApiResponse(200, {"name": name, **findings_document(classify(log.splitlines()))})


def _diagnose_attempt(dependencies: Dependencies, document: dict[str, Any]) -> ApiResponse:
    job_id = document["job_id"]
    job = dependencies.recovery.store.load_job(job_id) if isinstance(job_id, str) and job_id else None
    if job is None:
        raise ApiError(404, "no_such_job", "No such job", f"there is no job {job_id}"[:300], "job_id")
    attempt = document.get("attempt", job.attempt)
    if type(attempt) is not int or not 1 <= attempt <= job.attempt:
        detail = f"must be from 1 to {job.attempt}" if job.attempt else "the job has no attempt yet"
        raise ApiError(404, "no_such_attempt", "No such attempt", detail, "attempt", job_id=job.job_id)
    plan = dependencies.recovery.store.load_plan(job.job_id, attempt)
    if plan is None:
        detail = f"nothing is stored about attempt {attempt}"
        raise ApiError(404, "no_such_attempt", "No such attempt", detail, "attempt", job_id=job.job_id)
    recovery, now = dependencies.recovery, dependencies.recovery.clock()
    log_tail = _driver_log_tail(dependencies) if job.spec.backend is Backend.RAY else recovery.actions.log_tail
    evidence = collect_evidence(recovery.store, log_tail, recovery.policy, job, plan, now, recovery.for_each)
    outcome = outcome_of(job, attempt)
    diagnosis = evidence.diagnosis(recovery.policy, now)
    view = _view(diagnosis, job.job_id, attempt, evidence.unread_logs, outcome, _next_step(job, attempt))
    return ApiResponse(200, view)


def _next_step(job: Job, attempt: int) -> NextStep | None:
    """Return what follows the attempt if the job is past it; None while the attempt is the present one."""
    if job.status is JobStatus.FAILED:
        return NextStep.FAILED
    if job.status in TERMINAL:
        return NextStep.ENDED
    return NextStep.CONTINUED if attempt < job.attempt else None


def _driver_log_tail(dependencies: Dependencies) -> LogTail:
    """Return the reader of a driver's log. Only the function that reaches the Ray cluster can read the log."""

    def log_tail(job: Job, submission_id: str, most: int) -> Sequence[str] | str:
        if dependencies.ray_logs is None:
            return "this deployment has no Ray cluster"
        try:
            page = dependencies.ray_logs.read(submission_id, most, None, grows=False)
        except RayUnreachable as error:
            return str(error)
        return [text for _, text in page.lines]

    return log_tail


def _view(
    diagnosis: Diagnosis,
    job_id: str | None,
    attempt: int | None,
    unread_logs: Any,
    outcome: PastDiagnosis | None = None,
    next_step: NextStep | None = None,
) -> dict[str, Any]:
    lines = dict.fromkeys(Language, "")
    if outcome is not None:
        lines = {language: outcome_line(outcome.cause, outcome.where, outcome.held, language) for language in Language}
    return {
        **as_document(diagnosis),
        "job_id": job_id,
        "attempt": attempt,
        "page": {
            language.value: report_text(diagnosis, language, next_step) + lines[language] for language in Language
        },
        "unread_logs": {str(rank): reason for rank, reason in unread_logs.items()},
        "outcome": None
        if outcome is None
        else {
            "cause": outcome.cause,
            "where": outcome.where,
            "held": outcome.held,
            "english": lines[Language.ENGLISH].strip(),
            "chinese": lines[Language.CHINESE].strip(),
        },
    }
