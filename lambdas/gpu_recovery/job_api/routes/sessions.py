"""Routes of the console's sign-in: exchange a token for a session, and read who the caller is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_recovery.auth.roles import Role
from gpu_recovery.auth.sessions import new_session, sign_session
from gpu_recovery.core.errors import SpecInvalid
from gpu_recovery.job_api.authentication import operator_mark
from gpu_recovery.job_api.dependencies import Dependencies
from gpu_recovery.job_api.request import Request, Route
from gpu_recovery.job_api.response import ApiError, ApiResponse
from gpu_recovery.job_api.validation import body_of
from gpu_recovery.wire.json_body import time_text

if TYPE_CHECKING:
    from gpu_recovery.job_api.models.requests import CreateSessionRequest


def open_session(dependencies: Dependencies, request: Request) -> ApiResponse:
    """Exchange the caller's token for a session of the same or a lower role. The session is not stored.

    A session may be exchanged, too. The new session ends no later than the first, so sessions cannot be renewed.

    Raises:
        ApiError: 409, the deployment takes signed requests only; 403, the role exceeds the role of the token.
        SpecInvalid: the body is wrong, or asks for the role `user` although the token has no user.
    """
    if dependencies.principals is not None:
        detail = "this deployment takes signed requests only (gpu-recovery:api_auth is iam), so it issues no sessions"
        raise ApiError(409, "no_sessions", "No sessions here", detail)
    caller = request.caller
    assert caller.role is not None, "the route needs a role"
    body: CreateSessionRequest = body_of(request.text(), "CreateSessionRequest")
    role = Role(body.role) if body.role else caller.role
    if not caller.role.covers(role):
        detail = f"the token has the role {caller.role}, which does not include the role {role}"
        raise ApiError(403, "role_too_low", "Not allowed", detail, "role")
    if role is Role.USER and not caller.user:
        # A caller in this role owns the jobs of its user, and the user of the operator token would be "".
        raise SpecInvalid("role", "must be viewer or operator: the operator token has no user")
    parent = caller.token_id or operator_mark(dependencies)
    now = dependencies.recovery.clock()
    session = new_session(caller.user, role, parent, caller.expires_at, now, body.expires_in_s)
    view = {"user": caller.name, "role": role.value, "expires_at": time_text(session.expires_at)}
    dependencies.log.info("session_opened", extra=view)
    return ApiResponse(201, {"session": sign_session(dependencies.session_key(), session), **view})


def read_caller(dependencies: Dependencies, request: Request) -> ApiResponse:
    """Return who the caller is, and to which deployment the API belongs."""
    caller, policy = request.caller, dependencies.recovery.policy
    return ApiResponse(
        200,
        {
            "user": caller.name,
            "role": None if caller.role is None else caller.role.value,
            "expires_at": time_text(caller.expires_at),
            "is_session": caller.is_session,
            "deployment": {
                "cluster": dependencies.deployment.cluster,
                "region": dependencies.deployment.region,
                "preset": policy.preset.value,
                "adopt": dependencies.deployment.adopt,
                "observe_only": policy.observe_only,
                "replace": policy.replace,
            },
        },
    )


ROUTES = (
    Route(
        "POST",
        "/api/v2/sessions",
        open_session,
        "Exchange a token for a session",
        {201: "NewSession"},
        Role.VIEWER,
        takes="CreateSessionRequest",
        refuses=(409, 413, 422),
    ),
    Route("GET", "/api/v2/me", read_caller, "Read who the caller is", {200: "Me"}),
)
