"""Who calls, and what that allows: the operator's secret, or a token of a user."""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from typing import NoReturn

from gpu_recovery.auth.authenticator import TokenInvalid, TokenMissing
from gpu_recovery.auth.roles import Role
from gpu_recovery.auth.tokens import TokenKind
from gpu_recovery.core.job.record import Job
from gpu_recovery.job_api.dependencies import Dependencies
from gpu_recovery.job_api.response import ApiError

OPERATOR = "an operator"


@dataclass(frozen=True, slots=True)
class Caller:
    """Whom a token speaks for. `user` is "" for the operator's secret and for whoever calls without a token."""

    name: str
    role: Role | None
    user: str = ""

    def may(self, needed: Role | None) -> bool:
        """Whether its role is enough."""
        return needed is None or (self.role is not None and self.role.covers(needed))

    def must_own(self, job: Job) -> None:
        """Refused unless the job is the caller's, or the caller is an operator."""
        if self.role is not Role.OPERATOR and job.spec.user != self.user:
            owner = job.spec.user or "nobody in particular"
            detail = f"job {job.job_id} belongs to {owner}, not to {self.user}"
            raise ApiError(403, "foreign_job", "Not yours", detail, job_id=job.job_id)


NO_CALLER = Caller("nobody", None)


def caller_of(desk: Dependencies, authorization: str) -> Caller:
    """Whom the header speaks for; both kinds of token are compared in constant time. Refused if for nobody."""
    scheme, _, token = authorization.partition(" ")
    if scheme == "Bearer" and token.startswith(TokenKind.USER.prefix):
        return _user(desk, token)
    expected = f"Bearer {desk.operator_token()}"
    if not hmac.compare_digest(authorization.encode(errors="replace"), expected.encode()):
        _unauthorized("send the operator token, or a user's, as `Authorization: Bearer <token>`")
    return Caller(OPERATOR, Role.OPERATOR)


def _user(desk: Dependencies, token: str) -> Caller:
    try:
        kept = desk.users.authenticate(token)
    except (TokenInvalid, TokenMissing) as error:
        _unauthorized(str(error))
    return Caller(kept.holder, kept.role, kept.holder)


def _unauthorized(detail: str) -> NoReturn:
    raise ApiError(401, "unauthorized", "Unauthorized", detail, headers={"WWW-Authenticate": "Bearer"})
