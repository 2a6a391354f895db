"""The routes of tokens, which instances and users share: issue, list and revoke a token of one holder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpu_recovery.auth import tokens
from gpu_recovery.auth.tokens import TokenStore
from gpu_recovery.job_api.dependencies import Dependencies
from gpu_recovery.job_api.request import Request
from gpu_recovery.job_api.response import ApiError, ApiResponse
from gpu_recovery.job_api.views import token_view
from gpu_recovery.wire.json_body import object_of


@dataclass(frozen=True, slots=True)
class TokenRoutes:
    """The routes for the tokens of one kind. The path names the holder as `TokenKind.holder_field` does.

    store:   the store of these tokens.
    issued:  the message of the log when a token is issued.
    revoked: the message of the log when a token is revoked.
    """

    store: Callable[[Dependencies], TokenStore]
    issued: str
    revoked: str

    def issue_token(self, desk: Dependencies, request: Request) -> ApiResponse:
        """Issue a token for the holder. The answer (201) is the only place where the token is shown."""
        store, asked, now = self.store(desk), object_of(request.text()), desk.recovery.clock()
        issued = tokens.issue(store, request.named[store.kind.holder_field], now, request.caller.name, asked)
        view = token_view(issued.record, now)
        desk.log.info(self.issued, extra=view)
        return ApiResponse(201, {"token": issued.token, **view})

    def list_tokens(self, desk: Dependencies, request: Request) -> ApiResponse:
        """List the tokens of the holder, the newest last, without their secrets."""
        store = self.store(desk)
        name = store.kind.holder_field
        holder = tokens.checked_instance_id(store.kind, request.named[name])
        views = [token_view(one, desk.recovery.clock()) for one in store.load_tokens(holder).tokens]
        return ApiResponse(200, {name: holder, "tokens": views})

    def revoke_token(self, desk: Dependencies, request: Request) -> ApiResponse:
        """Revoke a token of the holder. It is refused everywhere within a minute."""
        store, now, token_id = self.store(desk), desk.recovery.clock(), request.named["token_id"]
        holder = request.named[store.kind.holder_field]
        revoked = tokens.revoke(store, holder, token_id, now)
        if revoked is None:
            raise ApiError(404, "no_such_token", "No such token", f"{holder} has no token {token_id}")
        view = token_view(revoked, now)
        desk.log.info(self.revoked, extra=view)
        return ApiResponse(200, view)
