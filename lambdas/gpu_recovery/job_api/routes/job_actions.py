"""Routes of job actions: cancel, suspend and resume a job."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gpu_recovery.auth.roles import Role
from gpu_recovery.core.events import CancelRequested, JobEvent, ResumeRequested, SuspendRequested
from gpu_recovery.core.job.record import TERMINAL, Job, JobStatus, StopPurpose
from gpu_recovery.core.state_machine import EventOutcome
from gpu_recovery.job_api.dependencies import Dependencies
from gpu_recovery.job_api.request import FLAG, Parameter, Request, Route
from gpu_recovery.job_api.response import ApiError, ApiResponse
from gpu_recovery.job_api.routes.jobs import job_of_path, view_of
from gpu_recovery.job_api.validation import body_of

if TYPE_CHECKING:
    from gpu_recovery.job_api.models.requests import OptionalReason

ACTION_ATTEMPTS_MAX = 5
"""Tries to handle an action. The scheduler may launch the job after it was read; the action is then outdated."""


def cancel_job(dependencies: Dependencies, request: Request) -> ApiResponse:
    """Cancel a job: 202 and the job, 200 if the job is canceled already.

    With the parameter `force`, the agents of the job's instances end its ranks too.
    """
    force = request.flag("force")

    def event_of(job: Job) -> JobEvent:
        at = dependencies.recovery.clock()
        return CancelRequested(at=at, attempt=job.attempt, by=request.caller.name, force=force)

    def is_done(job: Job) -> bool:
        is_ending = job.status is JobStatus.STOPPING and job.stop_purpose is StopPurpose.CANCEL
        return is_ending or job.status is JobStatus.CANCELED

    return _handle_action(dependencies, request, event_of, is_done, "Not canceled")


def suspend_job(dependencies: Dependencies, request: Request) -> ApiResponse:
    """Suspend a job until it is resumed: 202 and the job, 200 if a user or an operator has suspended it already."""
    body: OptionalReason = body_of(request.text(), "OptionalReason")
    because = (body.because or "").strip()

    def event_of(job: Job) -> JobEvent:
        at = dependencies.recovery.clock()
        return SuspendRequested(at=at, attempt=job.attempt, by=request.caller.name, because=because)

    def is_done(job: Job) -> bool:
        return job.held and job.status not in TERMINAL

    return _handle_action(dependencies, request, event_of, is_done, "Not suspended")


def resume_job(dependencies: Dependencies, request: Request) -> ApiResponse:
    """Resume a suspended job: 202 and the job, 200 if no user or operator has suspended it.

    The job returns to its former position in the queue.
    """

    def event_of(job: Job) -> JobEvent:
        return ResumeRequested(at=dependencies.recovery.clock(), attempt=job.attempt, by=request.caller.name)

    def is_done(job: Job) -> bool:
        return not job.held and job.status not in TERMINAL

    return _handle_action(dependencies, request, event_of, is_done, "Not resumed")


def _handle_action(
    dependencies: Dependencies,
    request: Request,
    event_of: Callable[[Job], JobEvent],
    is_done: Callable[[Job], bool],
    refusal_title: str,
) -> ApiResponse:
    """Handle an action on the job that the path names, and return the job.

    Args:
        dependencies: gives the recovery loop.
        request: names the job.
        event_of: returns the event of the action for a job.
        is_done: returns whether a job is already as the action wants it.
        refusal_title: title of the problem document if the action is not possible.

    Raises:
        ApiError: 403, the job belongs to another user; 404, there is no such job; 409, the action is not possible.
    """
    for _ in range(ACTION_ATTEMPTS_MAX):
        job = job_of_path(dependencies, request)
        request.caller.must_own(job)
        decision = dependencies.recovery.handle(job.job_id, event_of(job))
        after = job_of_path(dependencies, request)
        if decision is None or (decision.outcome is EventOutcome.OUTDATED and not is_done(after)):
            continue
        if decision.outcome is not EventOutcome.APPLIED and not is_done(after):
            detail = f"job {job.job_id} is {after.status}: {decision.reason}"
            raise ApiError(409, "not_possible", refusal_title, detail, job_id=job.job_id)
        return ApiResponse(202 if decision.outcome is EventOutcome.APPLIED else 200, view_of(dependencies, after))
    detail = f"job {request.named['job_id']} was launched again during each try; try again"
    raise ApiError(409, "moving", "The job is changing", detail, job_id=request.named["job_id"])


_JOB = {202: "Job", 200: "Job"}
_FORCE = (Parameter("force", "1: the agents of the job's instances end its ranks, too.", FLAG),)
ROUTES = (
    Route("POST", "/api/v2/jobs/<job_id>/cancel", cancel_job, "Cancel a job", _JOB, Role.USER, _FORCE, refuses=(409,)),
    Route(
        "POST",
        "/api/v2/jobs/<job_id>/suspend",
        suspend_job,
        "Suspend a job",
        _JOB,
        Role.USER,
        takes="OptionalReason",
        refuses=(409, 413, 422),
    ),
    Route(
        "POST",
        "/api/v2/jobs/<job_id>/resume",
        resume_job,
        "Resume a suspended job",
        _JOB,
        Role.USER,
        refuses=(409,),
    ),
)
