"""Routes of user tokens: issue, list and revoke a token of a user in a role."""

from __future__ import annotations

from gpu_recovery.auth.roles import Role
from gpu_recovery.job_api.request import Route
from gpu_recovery.job_api.routes.tokens import TokenRoutes

TOKENS = TokenRoutes(
    lambda dependencies: dependencies.user_tokens,
    lambda dependencies: dependencies.user_token_key(),
    "IssueUserTokenRequest",
    issued="user_token_issued",
    revoked="user_token_revoked",
)
_TOKENS_OF_USER = "/api/v2/users/<user>/tokens"
ROUTES = (
    Route(
        "POST",
        _TOKENS_OF_USER,
        TOKENS.issue_token,
        "Issue a token for a user",
        {201: "NewUserToken"},
        Role.OPERATOR,
        takes="IssueUserTokenRequest",
        refuses=(409, 413, 422),
    ),
    Route(
        "GET",
        _TOKENS_OF_USER,
        TOKENS.list_tokens,
        "List the tokens of a user",
        {200: "UserTokens"},
        Role.OPERATOR,
        refuses=(422,),
    ),
    Route(
        "DELETE",
        f"{_TOKENS_OF_USER}/<token_id>",
        TOKENS.revoke_token,
        "Revoke a token of a user",
        {200: "UserToken"},
        Role.OPERATOR,
        refuses=(422,),
    ),
)
