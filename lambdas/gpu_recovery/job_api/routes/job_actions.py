"""What people want of a job: its end, its suspension, its going on."""

from __future__ import annotations

from collections.abc import Callable

from gpu_recovery.auth.roles import Role
from gpu_recovery.core.events import CancelRequested, JobEvent, ResumeRequested, SuspendRequested
from gpu_recovery.core.job.record import TERMINAL, Job, JobStatus, StopPurpose
from gpu_recovery.core.state_machine import EventOutcome
from gpu_recovery.job_api.dependencies import Dependencies
from gpu_recovery.job_api.request import FLAG, Parameter, Request, Route
from gpu_recovery.job_api.response import ApiError, ApiResponse
from gpu_recovery.job_api.routes.jobs import job_of_path, view_of
from gpu_recovery.wire.json_body import because_of

ACTION_ATTEMPTS_MAX = 5
"""The scheduler may launch a job between our look at it and our order, which is then about an attempt that is over."""


def cancel_job(desk: Dependencies, request: Request) -> ApiResponse:
    """202 and the job, being stopped; by force, through the agents of its instances, too. 200 if it was canceled."""
    force = request.flag("force")

    def order(job: Job) -> JobEvent:
        at = desk.recovery.clock()
        return CancelRequested(at=at, attempt=job.attempt, by=request.caller.name, force=force)

    def is_so(job: Job) -> bool:
        ending = job.status is JobStatus.STOPPING and job.stop_purpose is StopPurpose.CANCEL
        return ending or job.status is JobStatus.CANCELED

    return _ordered(desk, request, order, is_so, "Not canceled")


def suspend_job(desk: Dependencies, request: Request) -> ApiResponse:
    """202 and the job, on its way out of its instances; 200 if a person has suspended it already."""
    because = because_of(request.text())

    def order(job: Job) -> JobEvent:
        at = desk.recovery.clock()
        return SuspendRequested(at=at, attempt=job.attempt, by=request.caller.name, because=because)

    def is_so(job: Job) -> bool:
        return job.held and job.status not in TERMINAL

    return _ordered(desk, request, order, is_so, "Not suspended")


def resume_job(desk: Dependencies, request: Request) -> ApiResponse:
    """202 and the job, in line again where it stood; 200 if nobody had suspended it."""

    def order(job: Job) -> JobEvent:
        return ResumeRequested(at=desk.recovery.clock(), attempt=job.attempt, by=request.caller.name)

    def is_so(job: Job) -> bool:
        return not job.held and job.status not in TERMINAL

    return _ordered(desk, request, order, is_so, "Not resumed")


def _ordered(
    desk: Dependencies, request: Request, order: Callable[[Job], JobEvent], is_so: Callable[[Job], bool], otherwise: str
) -> ApiResponse:
    """The job after the order. `is_so`: what was wanted is the case already; `otherwise`: the title of a refusal."""
    for _ in range(ACTION_ATTEMPTS_MAX):
        job = job_of_path(desk, request)
        request.caller.must_own(job)
        decision = desk.recovery.handle(job.job_id, order(job))
        after = job_of_path(desk, request)
        if decision is None or (decision.outcome is EventOutcome.OUTDATED and not is_so(after)):
            continue
        if decision.outcome is not EventOutcome.APPLIED and not is_so(after):
            detail = f"job {job.job_id} is {after.status}: {decision.reason}"
            raise ApiError(409, "not_possible", otherwise, detail, job_id=job.job_id)
        return ApiResponse(202 if decision.outcome is EventOutcome.APPLIED else 200, view_of(desk, after))
    detail = f"job {request.named['job_id']} was launched anew each time; ask again"
    raise ApiError(409, "moving", "The job is moving", detail, job_id=request.named["job_id"])


_JOB = {202: "Job", 200: "Job"}
_FORCE = (Parameter("force", "1: also have the agents of its instances end its ranks", FLAG),)
ROUTES = (
    Route("POST", "/api/v2/jobs/<job_id>/cancel", cancel_job, "End a job", _JOB, Role.USER, _FORCE, refuses=(409,)),
    Route(
        "POST",
        "/api/v2/jobs/<job_id>/suspend",
        suspend_job,
        "Take a job off its instances until it is resumed",
        _JOB,
        Role.USER,
        takes="Because",
        refuses=(409, 413, 422),
    ),
    Route(
        "POST",
        "/api/v2/jobs/<job_id>/resume",
        resume_job,
        "Let a suspended job go on",
        _JOB,
        Role.USER,
        refuses=(409,),
    ),
)
