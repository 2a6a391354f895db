"""Route of logs: lines that a rank of a job, or a driver on Ray, wrote."""

from __future__ import annotations

from gpu_recovery.core.identifiers import attempt_id
from gpu_recovery.core.job.record import LIVE, Job
from gpu_recovery.core.job.spec import Backend
from gpu_recovery.core.log_location import LogPage, place_of
from gpu_recovery.job_api.dependencies import Dependencies
from gpu_recovery.job_api.pagination import signed_cursor, verified_position
from gpu_recovery.job_api.request import TEXT, Parameter, Request, Route, between
from gpu_recovery.job_api.response import ApiError, ApiResponse
from gpu_recovery.job_api.routes.jobs import job_of_path
from gpu_recovery.ports.errors import CursorInvalid
from gpu_recovery.wire.json_body import time_text

TAIL, TAIL_MAX = 200, 10_000
"""Lines of an answer: default and upper bound."""
ATTEMPT_MAX = 9_999_999
"""Largest attempt number that a request may name."""
RANK_MAX = 2_999
"""Largest rank that a request may name."""


def read_logs(dependencies: Dependencies, request: Request) -> ApiResponse:
    """Return the newest lines of one rank, or the lines after a cursor.

    Raises:
        ApiError: 404, there is no log to read.
        CursorInvalid: the position of the cursor cannot be read any more.
    """
    job = job_of_path(dependencies, request)
    rank = request.number("rank", 0)
    attempt = request.number("attempt", job.attempt)
    tail = request.number("tail", TAIL)
    cursor = request.query.get("cursor")
    purpose = f"logs {job.job_id} {attempt} {rank}"
    place = None if cursor is None else verified_position(dependencies.cursor_key(), purpose, cursor)
    is_over = job.status not in LIVE or attempt < job.attempt
    page = _read_page(dependencies, job, attempt, rank, tail, place, grows=not is_over)
    if isinstance(page, str):
        if cursor is not None:
            raise CursorInvalid(page)
        raise _no_log(job, page)
    at_end = page.next_place is None or (is_over and page.next_place == place)
    return ApiResponse(
        200,
        {
            "job_id": job.job_id,
            "attempt": attempt,
            "rank": rank,
            "lines": [{"at": time_text(at), "text": text} for at, text in page.lines],
            "next_cursor": None if at_end else signed_cursor(dependencies.cursor_key(), purpose, page.next_place or ""),
        },
    )


def _read_page(
    dependencies: Dependencies, job: Job, attempt: int, rank: int, tail: int, place: str | None, *, grows: bool
) -> LogPage | str:
    """Return a page of the log of a rank or of the driver, or a sentence that says why no log can be read."""
    if not 1 <= attempt <= job.attempt:
        raise _no_log(job, f"the job has had {job.attempt} attempt(s)")
    if job.spec.backend is Backend.ECS:
        return dependencies.logs.read(*_log_stream(dependencies, job, attempt, rank), tail, place)
    if dependencies.ray_logs is None:
        raise _no_log(job, "the job ran on Ray, and this deployment has no Ray cluster")
    if rank:
        raise _no_log(job, "the job runs on Ray, which stores only the log of the driver, as rank 0")
    return dependencies.ray_logs.read(attempt_id(job.job_id, attempt), tail, place, grows=grows)


def _log_stream(dependencies: Dependencies, job: Job, attempt: int, rank: int) -> tuple[str, str, str]:
    """Return the CloudWatch location (group, stream, region) of a rank's log, as the awslogs driver names it.

    Raises:
        ApiError: 404, the rank has no task, or its container does not log by awslogs.
    """
    plan = dependencies.recovery.store.load_plan(job.job_id, attempt)
    task_id = plan.task_ids[rank] if plan is not None and rank < len(plan.task_ids) else ""
    if not task_id:
        raise _no_log(job, f"rank {rank} of attempt {attempt} has no known task")
    place = place_of(dependencies.describe(job.spec.task_definition) or {}, job.spec.container, task_id)
    if isinstance(place, str):
        raise _no_log(job, place)
    return place.group, place.stream, place.region


def _no_log(job: Job, reason: str) -> ApiError:
    return ApiError(404, "no_log", "No log", f"job {job.job_id}: {reason}", job_id=job.job_id)


_QUERY = (
    Parameter("rank", "Rank. The default is 0.", between(0, RANK_MAX)),
    Parameter("attempt", "Attempt. The default is the latest.", between(1, ATTEMPT_MAX)),
    Parameter("tail", "Upper bound of the lines.", between(1, TAIL_MAX)),
    Parameter("cursor", "`next_cursor` of the answer before.", TEXT),
)
ROUTES = (
    Route(
        "GET",
        "/api/v2/jobs/<job_id>/logs",
        read_logs,
        "Read the log of a rank or a driver",
        {200: "LogLines"},
        query=_QUERY,
        refuses=(502,),
    ),
)
