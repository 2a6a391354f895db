"""Authentication of callers by a token, or by the IAM principal that signed the request, and their roles."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NoReturn

from gpu_recovery.auth import sessions
from gpu_recovery.auth.authenticator import TokenInvalid, TokenMissing
from gpu_recovery.auth.principals import signer_of
from gpu_recovery.auth.roles import Role
from gpu_recovery.auth.tokens import USER_NAME, TokenKind
from gpu_recovery.core.job.record import Job
from gpu_recovery.job_api.dependencies import Dependencies
from gpu_recovery.job_api.response import ApiError

OPERATOR = "an operator"
"""Name of the caller who sends the operator token."""
SHOWN_MAX = 200
"""Characters of an unknown principal that the answer repeats."""
_SIGV4 = "AWS4-HMAC-SHA256"


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a request.

    user:       name of the user, "" for the operator token and for a call without a token.
    token_id:   id of the user's token, or of the parent of the session; "" for the operator token.
    expires_at: end of the token or the session; None if it does not end by itself.
    is_session: whether the caller sent a session.
    """

    name: str
    role: Role | None
    user: str = ""
    token_id: str = ""
    expires_at: datetime | None = None
    is_session: bool = False

    def may(self, needed: Role | None) -> bool:
        """Return whether the caller's role includes the role `needed`. Every caller may use a route that needs None."""
        return needed is None or (self.role is not None and self.role.covers(needed))

    def must_own(self, job: Job) -> None:
        """Check that the caller is an operator or the user of the job.

        Raises:
            ApiError: 403, the job belongs to another user.
        """
        if self.role is not Role.OPERATOR and job.spec.user != self.user:
            owner = job.spec.user or "no user"
            detail = f"job {job.job_id} belongs to {owner}, not to {self.user}"
            raise ApiError(403, "foreign_job", "Not yours", detail, job_id=job.job_id)


NO_CALLER = Caller("nobody", None)
"""Caller of a route that needs no token."""


def caller_of(dependencies: Dependencies, authorization: str, user_arn: str) -> Caller:
    """Return the caller of a request: the principal that signed it if the deployment has principals, else by a token.

    Tokens of both kinds are compared in constant time.

    Args:
        dependencies: gives the principals, or the operator token and the tokens of users.
        authorization: value of the header `Authorization`, "" if the request has none.
        user_arn: the signer, as API Gateway names it in the context of the request. "" if API Gateway authorized none.

    Raises:
        ApiError: 401, the token is missing, not issued here, unknown, revoked or expired, or API Gateway authorized no
            signer; 403, the signer has no role.
    """
    if dependencies.principals is not None:
        return _caller_of_signer(dependencies.principals, user_arn)
    scheme, _, token = authorization.partition(" ")
    if scheme == "Bearer" and token.startswith(sessions.PREFIX):
        return _caller_of_session(dependencies, token)
    if scheme == "Bearer" and token.startswith(TokenKind.USER.prefix):
        return _caller_of_user_token(dependencies, token)
    expected = f"Bearer {dependencies.operator_token()}"
    if not hmac.compare_digest(authorization.encode(errors="replace"), expected.encode()):
        ours = "this deployment accepts no signatures: " if scheme == _SIGV4 else ""
        _raise_unauthorized(f"{ours}send the operator token, or a user's, as `Authorization: Bearer <token>`")
    return Caller(OPERATOR, Role.OPERATOR)


def _caller_of_user_token(dependencies: Dependencies, token: str) -> Caller:
    try:
        record = dependencies.users.authenticate(token)
    except (TokenInvalid, TokenMissing) as error:
        _raise_unauthorized(str(error))
    return Caller(record.holder, record.role, record.holder, record.token_id, record.expires_at)


def _caller_of_session(dependencies: Dependencies, text: str) -> Caller:
    """Return the caller of a session. The session ends with its parent token."""
    try:
        session = sessions.verified_session(dependencies.session_key, text, dependencies.recovery.clock())
        if session.user:
            record = dependencies.users.valid_record(session.parent)
            if record.holder != session.user or record.role is None or not record.role.covers(session.role):
                raise TokenInvalid("the token of the session has changed: sign in again")
        elif not hmac.compare_digest(session.parent, operator_mark(dependencies)):
            raise TokenInvalid("the operator token of the session was replaced: sign in again")
    except TokenInvalid as error:
        _raise_unauthorized(str(error))
    name = session.user or OPERATOR
    token_id = session.parent if session.user else ""
    return Caller(name, session.role, session.user, token_id, session.expires_at, is_session=True)


def operator_mark(dependencies: Dependencies) -> str:
    """Return the mark of the present operator token, which its sessions name as their parent."""
    return sessions.operator_mark(dependencies.session_key(), dependencies.operator_token())


def _caller_of_signer(roles: Mapping[str, Role], user_arn: str) -> Caller:
    if not user_arn:
        detail = "this deployment accepts no tokens: sign the request with IAM credentials (SigV4, service execute-api)"
        raise ApiError(401, "not_signed", "Unauthorized", detail, headers={"WWW-Authenticate": _SIGV4})
    signer = signer_of(user_arn)
    if signer is None or signer.principal not in roles:
        named = user_arn[:SHOWN_MAX] if signer is None else signer.principal
        detail = f"{named} has no role in this deployment: add the principal to the setting gpu-recovery:api_roles"
        raise ApiError(403, "unknown_principal", "Unknown principal", detail)
    if not USER_NAME.fullmatch(signer.name):
        detail = f"{signer.name} cannot be the name of a user here: letters, digits and _ . @ + - are allowed"
        raise ApiError(403, "unfit_name", "Unfit name", detail)
    return Caller(signer.name, roles[signer.principal], signer.name)


def _raise_unauthorized(detail: str) -> NoReturn:
    raise ApiError(401, "unauthorized", "Unauthorized", detail, headers={"WWW-Authenticate": "Bearer"})
