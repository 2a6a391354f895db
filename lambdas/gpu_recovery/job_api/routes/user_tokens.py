"""The tokens of users: issued in a role, listed, revoked."""

from __future__ import annotations

from gpu_recovery.auth import user_tokens
from gpu_recovery.auth.user_tokens import Role
from gpu_recovery.job_api.dependencies import Desk
from gpu_recovery.job_api.request import Request, Route
from gpu_recovery.job_api.response import Answer, Refused
from gpu_recovery.wire import jobs


def issue_token(desk: Desk, request: Request) -> Answer:
    """201 and a new token for the user, the only time that it is shown."""
    asked, now = jobs.object_of(request.text()), desk.recovery.clock()
    issued = user_tokens.issue(desk.user_tokens, request.named["user"], now, request.caller.name, asked)
    desk.log.info("user_token_issued", extra=jobs.user_token_view(issued.kept, now))
    return Answer(201, {"token": issued.token, **jobs.user_token_view(issued.kept, now)})


def list_tokens(desk: Desk, request: Request) -> Answer:
    """The tokens of a user, the newest last, without what opens."""
    user = user_tokens.checked_user(request.named["user"])
    listed = desk.user_tokens.load_tokens(user)
    views = [jobs.user_token_view(one, desk.recovery.clock()) for one in listed.tokens]
    return Answer(200, {"user": user, "tokens": views})


def revoke_token(desk: Desk, request: Request) -> Answer:
    """The token, revoked; within a minute it opens nothing."""
    now, user, token_id = desk.recovery.clock(), request.named["user"], request.named["token_id"]
    revoked = user_tokens.revoke(desk.user_tokens, user, token_id, now)
    if revoked is None:
        raise Refused(404, "no_such_token", "No such token", f"{user} has no token {token_id}")
    desk.log.info("user_token_revoked", extra=jobs.user_token_view(revoked, now))
    return Answer(200, jobs.user_token_view(revoked, now))


_ALL = "/api/v2/users/<user>/tokens"
ROUTES = (
    Route(
        "POST",
        _ALL,
        issue_token,
        "Issue a token for a user",
        {201: "NewUserToken"},
        Role.OPERATOR,
        takes="UserTokenWish",
        refuses=(409, 413, 422),
    ),
    Route("GET", _ALL, list_tokens, "The tokens of a user", {200: "UserTokens"}, Role.OPERATOR, refuses=(422,)),
    Route(
        "DELETE",
        f"{_ALL}/<token_id>",
        revoke_token,
        "Revoke a token of a user",
        {200: "UserToken"},
        Role.OPERATOR,
        refuses=(422,),
    ),
)
