"""Routes of jobs: submit, list, read and explain them."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from gpu_recovery.auth.roles import Role
from gpu_recovery.core.job.record import WAITING, Job
from gpu_recovery.core.job.spec import Backend
from gpu_recovery.core.queue.view import PlacementPreview
from gpu_recovery.job_api.dependencies import Dependencies
from gpu_recovery.job_api.placement_preview import read_queue_view
from gpu_recovery.job_api.preflight_results import preflight_view
from gpu_recovery.job_api.recovery_expectation import expectation_view
from gpu_recovery.job_api.request import FLAG, Parameter, Request, Route
from gpu_recovery.job_api.response import ApiError, ApiResponse
from gpu_recovery.job_api.submission import SubmissionHandler, key_name
from gpu_recovery.job_api.timeout_warnings import observed_timeouts, timeout_warnings
from gpu_recovery.wire.attempts import attempt_views
from gpu_recovery.wire.jobs import decision_views, downtime_view, job_view, reason_at, records_of
from gpu_recovery.wire.json_body import read_json, time_text

KEY_CHARACTERS_MAX = 255
"""Upper bound of the characters of an idempotency key."""
YAML = ("application/yaml", "text/yaml", "application/x-yaml", "text/x-yaml")
"""Media types of a YAML body. A body of any other type is read as JSON."""


def submit_job(dependencies: Dependencies, request: Request) -> ApiResponse:
    """Submit a job: 201 and the new job, 200 and the same job for a repeated idempotency key.

    With the parameter `dry_run` the job is not stored, and the answer is its placement preview.
    """
    text, document = _document(request)
    if request.flag("dry_run"):
        job = _submission_handler(dependencies).dry_run(document, _job_user(request))
        view = preview_view(preview_new(dependencies, job), dependencies.recovery.clock())
        warnings = timeout_warnings(dependencies.recovery, job)
        expected = expectation_view(dependencies, job)
        return ApiResponse(200, {**view, "timeout_warnings": warnings, "recovery_expectation": expected})
    key = _idempotency_key(request)
    name = key_name(request.caller.name, key) if key else ""
    job, is_new = _submission_handler(dependencies).submit(document, text, _job_user(request), name)
    location = {"Location": f"/api/v2/jobs/{job.job_id}"}
    view = {**view_of(dependencies, job), "recovery_expectation": expectation_view(dependencies, job)}
    return ApiResponse(201 if is_new else 200, view, location)


def _submission_handler(dependencies: Dependencies) -> SubmissionHandler:
    return SubmissionHandler(
        dependencies.recovery,
        dependencies.submissions,
        dependencies.describe,
        dependencies.capacity.check,
        dependencies.random,
        dependencies.job_id_prefix,
        dependencies.rules,
        dependencies.priority_max,
    )


def _job_user(request: Request) -> str | None:
    """Return the user that every job of the caller must have; None for an operator, who may name any user."""
    return None if request.caller.role is Role.OPERATOR else request.caller.user


def _document(request: Request) -> tuple[str, Any]:
    """Return a body in JSON or YAML as (text, value).

    Raises:
        ApiError: 400, the body is not JSON or YAML as its media type says.
    """
    text = request.text()
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    is_yaml = media_type in YAML
    try:
        document = _read_yaml(text) if is_yaml else read_json(text)
        json.dumps(document, allow_nan=False)
    except (ValueError, RecursionError) as error:  # not JSON or YAML, a number too long, lists nested too deep
        language = "YAML" if is_yaml else "JSON"
        raise ApiError(400, "unreadable_body", f"Not {language}", str(error)[:500], "body") from error
    return text, document


def _idempotency_key(request: Request) -> str:
    key = request.headers.get("idempotency-key", "")
    if "idempotency-key" in request.headers and not (
        1 <= len(key) <= KEY_CHARACTERS_MAX and key.isascii() and key.isprintable()
    ):
        detail = f"must be 1 to {KEY_CHARACTERS_MAX} printable ASCII characters"
        raise ApiError(400, "bad_key", "Bad Idempotency-Key", detail, "Idempotency-Key")
    return key


def _read_yaml(text: str) -> Any:
    """Return the document. The reader's patterns take time at a start, and few requests have YAML."""
    from gpu_recovery.job_api.yaml_reader import read_yaml  # noqa: PLC0415

    return read_yaml(text)


# -- placement preview -------------------------------------------------------------------------------------------------


def preview_new(dependencies: Dependencies, job: Job) -> PlacementPreview:
    """Return the placement preview of a job that is not stored, as if the job was submitted now."""
    found_preview = read_queue_view(dependencies.recovery, job).of(job.job_id)
    return found_preview or PlacementPreview(
        False, "would wait for GPUs of the Ray cluster; the preview cannot count them"
    )


def preview(dependencies: Dependencies, job: Job) -> tuple[PlacementPreview, datetime] | None:
    """Return the placement preview of a job and the time at which it holds; None if the job does not wait in the queue.

    The reason in the record of the job is older: the scheduler does not write a record for each new number of GPUs.
    """
    if job.status not in WAITING:
        return None
    now = dependencies.recovery.clock()
    found_preview = (
        read_queue_view(dependencies.recovery).of(job.job_id)
        if job.spec.backend is Backend.ECS and not job.held
        else None
    )
    return (PlacementPreview(False, job.reason), reason_at(job)) if found_preview is None else (found_preview, now)


def preview_view(job_preview: PlacementPreview, at: datetime) -> dict[str, Any]:
    """Return a placement preview, which holds at a time, in the form that clients receive."""
    return {
        "would_start": job_preview.would_start,
        "instances": list(job_preview.instances),
        "short_of": job_preview.short_of.value if job_preview.short_of else None,
        "sentence": job_preview.sentence,
        "position": job_preview.position,
        "blockers": list(job_preview.blockers),
        "earliest_at": time_text(job_preview.earliest_at),
        "would_suspend": list(job_preview.would_suspend),
        "as_of": time_text(at),
    }


def explain_job(dependencies: Dependencies, request: Request) -> ApiResponse:
    """Return every decision about a job with its reason, the oldest first, and what the job waits for now."""
    job = job_of_path(dependencies, request)
    job_preview = preview(dependencies, job)
    observed = observed_timeouts(dependencies.recovery, job)
    return ApiResponse(
        200,
        {
            "job_id": job.job_id,
            "status": job.status.value,
            "reason": job.reason,
            "pending": None if job_preview is None else preview_view(*job_preview),
            "timeout_warnings": timeout_warnings(dependencies.recovery, job, observed),
            "preflight": preflight_view(dependencies.recovery, job),
            "downtime": downtime_view(job, dependencies.recovery.clock()),
            "decisions": decision_views(job),
        },
    )


# -- reading -----------------------------------------------------------------------------------------------------------


def job_of_path(dependencies: Dependencies, request: Request) -> Job:
    """Return the job that the path names.

    Raises:
        ApiError: 404, there is no such job, or no such path below a job.
    """
    job_id = request.named["job_id"]
    job = dependencies.recovery.store.load_job(job_id)
    if job is None and "/" in job_id and request.path.endswith(job_id):  # a wrong path below a job looks like its id
        detail = f"there is no {request.method} {request.path}, and no job {job_id}"
        raise ApiError(404, "no_such_path", "No such path", detail, job_id=job_id)
    if job is None:
        raise ApiError(404, "no_such_job", "No such job", f"there is no job {job_id}", job_id=job_id)
    return job


def view_of(dependencies: Dependencies, job: Job) -> dict[str, Any]:
    """Return one job with its attempts, the location of its archive (None without an archive) and its warnings."""
    records = f"{dependencies.records}/{records_of(job.job_id)}" if dependencies.records else None
    view = job_view(job, dependencies.recovery.policy)
    attempts = attempt_views(job, dependencies.attempts.of)
    warnings = timeout_warnings(dependencies.recovery, job)
    return {
        **view,
        "downtime": downtime_view(job, dependencies.recovery.clock()),
        "attempts": attempts,
        "records": records,
        "timeout_warnings": warnings,
        "recovery_expectation": None,
    }


def read_job(dependencies: Dependencies, request: Request) -> ApiResponse:
    """Return one job with its history and its attempts."""
    return ApiResponse(200, view_of(dependencies, job_of_path(dependencies, request)))


_SUBMIT_QUERY = (
    Parameter("dry_run", "1: store nothing, and answer with the placement preview of the job.", FLAG),
    Parameter(
        "Idempotency-Key",
        "The same key and specification give the same job, for at least a day.",
        {"type": "string", "minLength": 1, "maxLength": KEY_CHARACTERS_MAX, "pattern": "^[!-~]([ -~]*[!-~])?$"},
        where="header",
    ),
)
ROUTES = (
    Route(
        "POST",
        "/api/v2/jobs",
        submit_job,
        "Submit a job",
        {201: "Job", 200: "JobOrForesight"},
        Role.USER,
        _SUBMIT_QUERY,
        "JobSpec",
        needs_body=True,
        also_yaml=True,
        refuses=(413, 422),
    ),
    Route("GET", "/api/v2/jobs/<job_id>", read_job, "Read a job", {200: "Job"}),
    Route(
        "GET",
        "/api/v2/jobs/<job_id>/explain",
        explain_job,
        "Explain the status of a job",
        {200: "Explanation"},
    ),
)
