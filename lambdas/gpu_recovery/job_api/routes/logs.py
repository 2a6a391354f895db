"""What the ranks of a job wrote."""

from __future__ import annotations

from gpu_recovery.core.identifiers import attempt_id
from gpu_recovery.core.job.record import LIVE, Job
from gpu_recovery.core.job.spec import Backend
from gpu_recovery.core.log_location import LogPage, place_of
from gpu_recovery.job_api.dependencies import Dependencies
from gpu_recovery.job_api.pagination import opened_cursor, sealed_cursor
from gpu_recovery.job_api.request import TEXT, Parameter, Request, Route
from gpu_recovery.job_api.response import ApiError, ApiResponse
from gpu_recovery.job_api.routes.jobs import job_of_path
from gpu_recovery.ports.errors import CursorInvalid
from gpu_recovery.wire.json_body import time_text

TAIL, TAIL_MAX = 200, 10_000
ATTEMPT_MAX = 9_999_999
RANK_MAX = 2_999


def read_logs(desk: Dependencies, request: Request) -> ApiResponse:
    """The newest lines of one rank, or those after a cursor."""
    job = job_of_path(desk, request)
    rank = request.number("rank", 0, 0, RANK_MAX) or 0
    attempt = request.number("attempt", job.attempt, 1, ATTEMPT_MAX) or 0
    tail = request.number("tail", TAIL, 1, TAIL_MAX) or TAIL
    given = request.query.get("cursor")
    purpose = f"logs {job.job_id} {attempt} {rank}"
    place = None if given is None else opened_cursor(desk.operator_token(), purpose, given)
    is_over = job.status not in LIVE or attempt < job.attempt
    found = _read(desk, job, attempt, rank, tail, place, grows=not is_over)
    if isinstance(found, str):
        if given is not None:
            raise CursorInvalid(found)
        raise _nothing(job, found)
    at_end = found.next_place is None or (is_over and found.next_place == place)
    return ApiResponse(
        200,
        {
            "job_id": job.job_id,
            "attempt": attempt,
            "rank": rank,
            "lines": [{"at": time_text(at), "text": text} for at, text in found.lines],
            "next_cursor": None if at_end else sealed_cursor(desk.operator_token(), purpose, found.next_place or ""),
        },
    )


def _read(
    desk: Dependencies, job: Job, attempt: int, rank: int, tail: int, place: str | None, *, grows: bool
) -> LogPage | str:
    """A page of the log of a rank, or of the driver; or why there is none."""
    if not 1 <= attempt <= job.attempt:
        raise _nothing(job, f"it has had {job.attempt} attempt(s)")
    if job.spec.backend is Backend.ECS:
        return desk.logs.read(*_stream(desk, job, attempt, rank), tail, place)
    if desk.ray_logs is None:
        raise _nothing(job, "it ran on Ray, and this deployment has no Ray cluster")
    if rank:
        raise _nothing(job, "it runs on Ray, which keeps the log of its driver alone, as rank 0")
    return desk.ray_logs.read(attempt_id(job.job_id, attempt), tail, place, grows=grows)


def _stream(desk: Dependencies, job: Job, attempt: int, rank: int) -> tuple[str, str, str]:
    """(group, stream, region) of a rank's log, as the awslogs driver names them. Refused if it is not there."""
    plan = desk.recovery.store.load_plan(job.job_id, attempt)
    task_id = plan.task_ids[rank] if plan is not None and rank < len(plan.task_ids) else ""
    if not task_id:
        raise _nothing(job, f"rank {rank} of attempt {attempt} has no task that is known")
    place = place_of(desk.describe(job.spec.task_definition) or {}, job.spec.container, task_id)
    if isinstance(place, str):
        raise _nothing(job, place)
    return place.group, place.stream, place.region


def _nothing(job: Job, why: str) -> ApiError:
    return ApiError(404, "no_log", "No log", f"job {job.job_id}: {why}", job_id=job.job_id)


_QUERY = (
    Parameter("rank", "which rank; 0 unless told", {"type": "integer", "minimum": 0, "maximum": RANK_MAX}),
    Parameter("attempt", "which attempt; the latest unless told", {"type": "integer", "minimum": 1}),
    Parameter("tail", "how many lines at most", {"type": "integer", "minimum": 1, "maximum": TAIL_MAX}),
    Parameter("cursor", "where the answer before this one said to go on", TEXT),
)
ROUTES = (
    Route(
        "GET",
        "/api/v2/jobs/<job_id>/logs",
        read_logs,
        "What a rank or a driver wrote",
        {200: "LogLines"},
        query=_QUERY,
        refuses=(502,),
    ),
)
