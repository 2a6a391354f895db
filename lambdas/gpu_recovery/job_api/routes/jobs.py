"""Jobs: submitted, listed, read with their attempts, explained."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from gpu_recovery.auth.roles import Role
from gpu_recovery.core.job.record import WAITING, Job, JobStatus
from gpu_recovery.core.job.spec import GROUP, Backend
from gpu_recovery.job_api.dependencies import Dependencies
from gpu_recovery.job_api.pagination import opened_cursor, sealed_cursor
from gpu_recovery.job_api.placement_preview import PlacementPreview, read_queue_view
from gpu_recovery.job_api.request import FLAG, TEXT, Parameter, Request, Route
from gpu_recovery.job_api.response import ApiError, ApiResponse
from gpu_recovery.job_api.submission import SubmissionHandler, key_name
from gpu_recovery.job_api.yaml_reader import read_yaml
from gpu_recovery.ports.values import JobPage
from gpu_recovery.wire.attempts import attempt_views
from gpu_recovery.wire.jobs import job_summary, job_view, records_of
from gpu_recovery.wire.json_body import history_view, read_json, time_text

PAGE_MAX, PAGE_DEFAULT = 200, 50
PAGES_READ_MAX = 10
"""How much of a long list one request reads to fill a page of what was asked for."""
KEY_CHARACTERS_MAX = 255
YAML = ("application/yaml", "text/yaml", "application/x-yaml", "text/x-yaml")
STATUSES = [one.value for one in JobStatus]


def submit_job(desk: Dependencies, request: Request) -> ApiResponse:
    """201 and the new job, 200 and the same job for a repeated key; for a dry run, what would become of it."""
    text, document = _document(request)
    if request.flag("dry_run"):
        job = _submission_handler(desk).dry_run(document, _user(request))
        return ApiResponse(200, preview_view(preview_new(desk, job)))
    key = _key(request)
    name = key_name(request.caller.name, key) if key else ""
    job, is_new = _submission_handler(desk).submit(document, text, _user(request), name)
    location = {"Location": f"/api/v2/jobs/{job.job_id}"}
    return ApiResponse(201 if is_new else 200, view_of(desk, job), location)


def _submission_handler(desk: Dependencies) -> SubmissionHandler:
    return SubmissionHandler(
        desk.recovery,
        desk.submissions,
        desk.describe,
        desk.capacity.check,
        desk.random,
        desk.job_id_prefix,
        desk.check_family,
    )


def _user(request: Request) -> str | None:
    """Whose jobs the caller submits; None for anybody's."""
    return None if request.caller.role is Role.OPERATOR else request.caller.user


def _document(request: Request) -> tuple[str, Any]:
    """(text, value) of a body in JSON or YAML. Refused if it is neither."""
    text = request.text()
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    is_yaml = kind in YAML
    try:
        document = read_yaml(text) if is_yaml else read_json(text)
        json.dumps(document, allow_nan=False)
    except (ValueError, RecursionError) as error:  # no text, no JSON, a number too long, lists too deep
        spelling = "YAML" if is_yaml else "JSON"
        raise ApiError(400, "unreadable_body", f"Not {spelling}", str(error)[:500], "body") from error
    return text, document


def _key(request: Request) -> str:
    key = request.headers.get("idempotency-key", "")
    if "idempotency-key" in request.headers and not (
        1 <= len(key) <= KEY_CHARACTERS_MAX and key.isascii() and key.isprintable()
    ):
        detail = f"must be 1 to {KEY_CHARACTERS_MAX} printable ASCII characters"
        raise ApiError(400, "bad_key", "Bad Idempotency-Key", detail, "Idempotency-Key")
    return key


# -- what is to come ---------------------------------------------------------------------------------------------------


def preview_new(desk: Dependencies, job: Job) -> PlacementPreview:
    """What would become of a job that is not kept, were it submitted now."""
    found = read_queue_view(desk.recovery, job).of(job.job_id)
    return found or PlacementPreview(
        False, "would wait for GPUs of the Ray cluster, which only its own function can count"
    )


def preview(desk: Dependencies, job: Job) -> PlacementPreview | None:
    """What a job in line waits for; None for one that is not in line."""
    if job.status not in WAITING:
        return None
    found = read_queue_view(desk.recovery).of(job.job_id) if job.spec.backend is Backend.ECS and not job.held else None
    return found or PlacementPreview(False, job.reason)


def preview_view(foresight: PlacementPreview) -> dict[str, Any]:
    """A foresight as clients see it."""
    return {
        "would_start": foresight.would_start,
        "instances": list(foresight.instances),
        "short_of": foresight.short_of.value if foresight.short_of else None,
        "sentence": foresight.sentence,
        "position": foresight.position,
        "blockers": list(foresight.blockers),
        "earliest_at": time_text(foresight.earliest_at),
        "would_suspend": list(foresight.would_suspend),
    }


def explain_job(desk: Dependencies, request: Request) -> ApiResponse:
    """Every decision about a job with its reason, the oldest first, and what it waits for now."""
    job = job_of_path(desk, request)
    foresight = preview(desk, job)
    return ApiResponse(
        200,
        {
            "job_id": job.job_id,
            "status": job.status.value,
            "reason": job.reason,
            "pending": None if foresight is None else preview_view(foresight),
            "decisions": [history_view(entry) for entry in job.history],
        },
    )


# -- reading -----------------------------------------------------------------------------------------------------------


def job_of_path(desk: Dependencies, request: Request) -> Job:
    """The job that the path names. Refused if there is none."""
    job_id = request.named["job_id"]
    job = desk.recovery.store.load_job(job_id)
    if job is None:
        raise ApiError(404, "no_such_job", "No such job", f"there is no job {job_id}", job_id=job_id)
    return job


def view_of(desk: Dependencies, job: Job) -> dict[str, Any]:
    """A job by itself, with its attempts, and where it is recorded."""
    records = f"{desk.records}/{records_of(job.job_id)}" if desk.records else None
    view = job_view(job, desk.recovery.policy)
    return {**view, "attempts": attempt_views(job, desk.attempts.of), "records": records}


def read_job(desk: Dependencies, request: Request) -> ApiResponse:
    """One job with its history and its attempts."""
    return ApiResponse(200, view_of(desk, job_of_path(desk, request)))


def list_jobs(desk: Dependencies, request: Request) -> ApiResponse:
    """A page of jobs, what is under way first."""
    status = request.query.get("status")
    if status is not None and status not in STATUSES:
        raise ApiError(400, "bad_query", "Bad status", f"must be one of {', '.join(STATUSES)}", "status")
    group = request.query.get("group")
    if group and not GROUP.fullmatch(group):
        detail = "must be letters, digits, dots, dashes and underscores, at most 63"
        raise ApiError(400, "bad_query", "Bad group", detail, "group")
    since, user = _since(request), request.query.get("user")
    limit = request.number("limit", PAGE_DEFAULT, 1, PAGE_MAX) or PAGE_DEFAULT

    def is_meant(job: Job) -> bool:
        return (
            (user is None or job.spec.user == user)
            and (group is None or job.spec.group == group)
            and (since is None or job.queued_at >= since)
        )

    key = desk.operator_token()
    given = request.query.get("cursor")
    place = None if given is None else opened_cursor(key, "jobs", given)
    bad: list[Exception] = []
    jobs: list[Job] = []
    for _ in range(PAGES_READ_MAX):
        page: JobPage = desk.recovery.store.list_jobs(
            JobStatus(status) if status else None, limit - len(jobs), place, bad
        )
        jobs += [job for job in page.jobs if is_meant(job)]
        place = page.cursor
        if place is None or len(jobs) >= limit:
            break
    views = [job_summary(job, desk.recovery.policy) for job in jobs]
    cursor = None if place is None else sealed_cursor(key, "jobs", place)
    return ApiResponse(200, {"jobs": views, "next_cursor": cursor, "unreadable": [str(error) for error in bad]})


def _since(request: Request) -> datetime | None:
    text = request.query.get("since")
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text.replace(" ", "+")).astimezone(UTC)  # a + of a query is a space
    except (ValueError, OverflowError) as error:
        detail = "must be a time such as 2026-11-21T09:00:00Z"
        raise ApiError(400, "bad_query", "Bad since", detail, "since") from error


_LISTING = (
    Parameter("status", "only jobs in this status", {"type": "string", "enum": STATUSES}),
    Parameter("user", "only jobs of this user", TEXT),
    Parameter("group", "only jobs of this group", {"type": "string", "pattern": f"^({GROUP.pattern})?$"}),
    Parameter("since", "only jobs submitted at or after this time", {"type": "string", "format": "date-time"}),
    Parameter("limit", "how many jobs a page has", {"type": "integer", "minimum": 1, "maximum": PAGE_MAX}),
    Parameter("cursor", "where the page before this one said to go on", TEXT),
)
_SUBMITTING = (
    Parameter("dry_run", "1: keep nothing, and say what would become of the job", FLAG),
    Parameter(
        "Idempotency-Key",
        "the same key and specification are the same job, for a day at least",
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
        _SUBMITTING,
        "JobSpec",
        needs_body=True,
        also_yaml=True,
        refuses=(413, 422),
    ),
    Route("GET", "/api/v2/jobs", list_jobs, "List jobs, what is under way first", {200: "Jobs"}, query=_LISTING),
    Route("GET", "/api/v2/jobs/<job_id>", read_job, "One job, its history and its attempts", {200: "Job"}),
    Route(
        "GET",
        "/api/v2/jobs/<job_id>/explain",
        explain_job,
        "Why a job is where it is, and what it waits for",
        {200: "Explanation"},
    ),
)
