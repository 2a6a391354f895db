"""Routes of tokens, shared by instances and users: issue, list and revoke tokens."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from gpu_recovery.auth import tokens
from gpu_recovery.auth.roles import Role
from gpu_recovery.auth.tokens import AskedToken, TokenStore
from gpu_recovery.core.lazy_dataclass import frozen_dataclass
from gpu_recovery.job_api.dependencies import Dependencies
from gpu_recovery.job_api.request import Request
from gpu_recovery.job_api.response import ApiError, ApiResponse
from gpu_recovery.job_api.validation import body_of
from gpu_recovery.job_api.views import token_view

if TYPE_CHECKING:
    from gpu_recovery.job_api.models.requests import IssueTokenRequest, IssueUserTokenRequest


@frozen_dataclass()
class TokenRoutes:
    """Routes for the tokens of one kind. The path names the holder by the name in `TokenKind.holder_field`.

    store:   returns the store of these tokens.
    key:     returns their issuer key.
    takes:   name of the model of a request for a token.
    issued:  log message when a token is issued.
    revoked: log message when a token is revoked.
    """

    store: Callable[[Dependencies], TokenStore]
    key: Callable[[Dependencies], bytes]
    takes: str
    issued: str
    revoked: str

    def issue_token(self, dependencies: Dependencies, request: Request) -> ApiResponse:
        """Issue a token for the holder. Only this answer (201) contains the token itself.

        A session issues none: the new token would outlive the session, and could have a higher role.

        Raises:
            ApiError: 403, the caller sent a session; 409, the deployment takes signed requests only.
        """
        if request.caller.is_session:
            detail = "a session cannot issue tokens: use a token, with `gpu-recovery token issue`"
            raise ApiError(403, "needs_token", "Needs a token", detail)
        if dependencies.principals is not None:
            detail = "this deployment takes signed requests only (gpu-recovery:api_auth is iam), so it issues no tokens"
            raise ApiError(409, "no_tokens", "No tokens here", detail)
        store, now = self.store(dependencies), dependencies.recovery.clock()
        body: IssueTokenRequest | IssueUserTokenRequest = body_of(request.text(), self.takes)
        holder, key = request.named[store.kind.holder_field], self.key(dependencies)
        role = Role(getattr(body, "role", Role.USER))
        asked = AskedToken(role, timedelta(seconds=body.expires_in_s), body.note)
        issued = tokens.issue(store, key, holder, now, request.caller.name, asked)
        view = token_view(issued.record, now)
        dependencies.log.info(self.issued, extra=view)
        return ApiResponse(201, {"token": issued.token, **view})

    def list_tokens(self, dependencies: Dependencies, request: Request) -> ApiResponse:
        """List the tokens of the holder, the newest last, without their secrets."""
        store = self.store(dependencies)
        name = store.kind.holder_field
        holder = tokens.checked_holder(store.kind, request.named[name])
        views = [token_view(token, dependencies.recovery.clock()) for token in store.load_tokens(holder).tokens]
        return ApiResponse(200, {name: holder, "tokens": views})

    def revoke_token(self, dependencies: Dependencies, request: Request) -> ApiResponse:
        """Revoke a token of the holder. Every API rejects the token within a minute.

        Raises:
            ApiError: 404, the holder has no such token.
        """
        store, now, token_id = self.store(dependencies), dependencies.recovery.clock(), request.named["token_id"]
        holder = request.named[store.kind.holder_field]
        revoked = tokens.revoke(store, holder, token_id, now)
        if revoked is None:
            raise ApiError(404, "no_such_token", "No such token", f"{holder} has no token {token_id}")
        view = token_view(revoked, now)
        dependencies.log.info(self.revoked, extra=view)
        return ApiResponse(200, view)
