"""Models of request bodies, except for the specification of a job."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from gpu_recovery.auth.roles import Role
from gpu_recovery.auth.sessions import LIFETIME_S as SESSION_S
from gpu_recovery.auth.sessions import LIFETIME_S_MAX as SESSION_S_MAX
from gpu_recovery.auth.sessions import LIFETIME_S_MIN as SESSION_S_MIN
from gpu_recovery.auth.tokens import LIFETIME_S, LIFETIME_S_MAX, LIFETIME_S_MIN, NOTE_MAX
from gpu_recovery.core.gpu_lock import HOLDER, LEASE_S, LEASE_S_MAX, LEASE_S_MIN, OWNER, RANK_MAX, TOKEN_MAX
from gpu_recovery.core.queue.quota import LimitsInvalid, entry_of_text
from gpu_recovery.job_api.models.rules import (
    AtLeast,
    Checked,
    Choice,
    Line,
    Matching,
    RequestModel,
    Text,
    Whole,
    refusal,
)

BECAUSE_CHARACTERS_MAX = 500
"""Length of a reason in characters at most."""

NO_REASON = "a reason is required: it is shown in statuses and e-mails"
"""Sentence if a required reason is missing or empty."""


def _entry(text: str) -> str:
    try:
        entry_of_text(text)
    except LimitsInvalid as error:
        raise refusal(error.detail) from error
    return text


def _reason(text: str) -> str:
    if not text.strip():
        raise refusal(NO_REASON)
    return text


_Reason = Annotated[str, Line(BECAUSE_CHARACTERS_MAX)]
_Owner = Annotated[str, Matching(OWNER, f"spelt as {OWNER.pattern}")]
_LockJob = Annotated[str, Text("must be the id of the job that the lock belongs to")]
_Lease = Annotated[int, Whole(LEASE_S_MIN, LEASE_S_MAX)]
_FencingToken = Annotated[int, Whole(1, TOKEN_MAX)]
_RoleName = Annotated[str, Choice(Role)]


class OptionalReason(RequestModel):
    """A reason, which may be missing."""

    because: _Reason | None = None


class RequiredReason(RequestModel):
    """A reason, which must be given."""

    because: Annotated[_Reason, Checked(_reason, NO_REASON)]


class IssueTokenRequest(RequestModel):
    """Request for a token of an instance's agent."""

    expires_in_s: Annotated[int, Whole(LIFETIME_S_MIN, LIFETIME_S_MAX, " of seconds")] = Field(
        default_factory=lambda: LIFETIME_S, description=f"Lifetime of the token. The default is {LIFETIME_S}."
    )
    note: Annotated[str, Line(NOTE_MAX)] = Field(default_factory=str)


class IssueUserTokenRequest(IssueTokenRequest):
    """Request for a token of a user in a role."""

    role: _RoleName = Field(default_factory=lambda: Role.USER.value, description="The default is user.")


class CreateSessionRequest(RequestModel):
    """Request for a session. Without a role the session has the role of the token."""

    role: _RoleName = Field(default_factory=str)
    expires_in_s: Annotated[int, Whole(SESSION_S_MIN, SESSION_S_MAX, " of seconds")] = Field(
        default_factory=lambda: SESSION_S, description=f"Lifetime of the session. The default is {SESSION_S}."
    )


class AcquireLockRequest(RequestModel):
    """Request for a lock of a job."""

    job_id: _LockJob
    owner: _Owner
    holder: Annotated[str, Matching(HOLDER, f"spelt as {HOLDER.pattern}")] | None = None
    rank: Annotated[int, Whole(0, RANK_MAX)] | None = None
    lease_s: _Lease | None = LEASE_S


class ReleaseLockRequest(RequestModel):
    """Request to release a lock."""

    job_id: _LockJob
    owner: _Owner
    token: _FencingToken


class RenewLockRequest(ReleaseLockRequest):
    """Request to renew the lease of a lock."""

    lease_s: _Lease | None = LEASE_S


class QuotaLimits(RequestModel):
    """New limits of instances by `user/PRIORITY/group`, and of running jobs. No limit is null."""

    instances: dict[Annotated[str, Checked(_entry)], Annotated[int, AtLeast(0)]] | None = None
    max_running_jobs: Annotated[int, AtLeast(1)] | None = None
    max_running_jobs_per_user: Annotated[int, AtLeast(1)] | None = None


class UpdateQuotasRequest(RequestModel):
    """Request for new limits. The answer to GET can be sent back, with its revision; the header `If-Match` decides."""

    limits: QuotaLimits
    revision: Annotated[Any, Field(default_factory=int)]


class DiagnosisRequest(RequestModel):
    """Request for a diagnosis of an attempt of a job, of a case, or of a log."""

    job_id: Annotated[str, Field(default_factory=str)]
    attempt: Annotated[int, Field(default_factory=int)]
    reports: Annotated[list[dict[str, Any]], Field(default_factory=list)]
    workers: Annotated[list[dict[str, Any]], Field(default_factory=list)]
    at_s: Annotated[float, Field(default_factory=float)]
    log: Annotated[str, Field(default_factory=str)]
    name: Annotated[str, Field(default_factory=str, max_length=255)]
