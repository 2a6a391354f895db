"""Authentication of callers by the operator token or a user's token, and their roles."""

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
"""Name of the caller who sends the operator token."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a request. `user` is "" for the operator token and for a call without a token."""

    name: str
    role: Role | None
    user: str = ""

    def may(self, needed: Role | None) -> bool:
        """Return whether the caller's role includes the role `needed`. Every caller may use a route that needs None."""
        return needed is None or (self.role is not None and self.role.covers(needed))

    def must_own(self, job: Job) -> None:
        """Check that the caller is an operator or the user of the job.

        Raises:
            ApiError: 403, the job belongs to another user.
        """
        if self.role is not Role.OPERATOR and job.spec.user != self.user:
            owner = job.spec.user or "nobody in particular"
            detail = f"job {job.job_id} belongs to {owner}, not to {self.user}"
            raise ApiError(403, "foreign_job", "Not yours", detail, job_id=job.job_id)


NO_CALLER = Caller("nobody", None)
"""Caller of a route that needs no token."""


def caller_of(dependencies: Dependencies, authorization: str) -> Caller:
    """Return the caller that the `Authorization` header names.

    Tokens of both kinds are compared in constant time.

    Args:
        dependencies: gives the operator token and the tokens of users.
        authorization: value of the header, "" if the request has none.

    Raises:
        ApiError: 401, the token is missing, not issued here, unknown, revoked or expired.
    """
    scheme, _, token = authorization.partition(" ")
    if scheme == "Bearer" and token.startswith(TokenKind.USER.prefix):
        return _caller_of_user_token(dependencies, token)
    expected = f"Bearer {dependencies.operator_token()}"
    if not hmac.compare_digest(authorization.encode(errors="replace"), expected.encode()):
        _raise_unauthorized("send the operator token, or a user's, as `Authorization: Bearer <token>`")
    return Caller(OPERATOR, Role.OPERATOR)


def _caller_of_user_token(dependencies: Dependencies, token: str) -> Caller:
    try:
        record = dependencies.users.authenticate(token)
    except (TokenInvalid, TokenMissing) as error:
        _raise_unauthorized(str(error))
    return Caller(record.holder, record.role, record.holder)


def _raise_unauthorized(detail: str) -> NoReturn:
    raise ApiError(401, "unauthorized", "Unauthorized", detail, headers={"WWW-Authenticate": "Bearer"})
