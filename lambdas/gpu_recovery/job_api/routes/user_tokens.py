"""The tokens of users: issued in a role, listed, revoked."""

from __future__ import annotations

from gpu_recovery.auth.roles import Role
from gpu_recovery.job_api.request import Route
from gpu_recovery.job_api.routes.tokens import TokenRoutes

TOKENS = TokenRoutes(lambda desk: desk.user_tokens, issued="user_token_issued", revoked="user_token_revoked")
_ALL = "/api/v2/users/<user>/tokens"
ROUTES = (
    Route(
        "POST",
        _ALL,
        TOKENS.issue_token,
        "Issue a token for a user",
        {201: "NewUserToken"},
        Role.OPERATOR,
        takes="UserTokenWish",
        refuses=(409, 413, 422),
    ),
    Route("GET", _ALL, TOKENS.list_tokens, "The tokens of a user", {200: "UserTokens"}, Role.OPERATOR, refuses=(422,)),
    Route(
        "DELETE",
        f"{_ALL}/<token_id>",
        TOKENS.revoke_token,
        "Revoke a token of a user",
        {200: "UserToken"},
        Role.OPERATOR,
        refuses=(422,),
    ),
)
