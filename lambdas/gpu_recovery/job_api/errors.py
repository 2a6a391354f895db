"""The answer to what goes wrong behind a route: errors that a client can do something about."""

from __future__ import annotations

from gpu_recovery.auth.tokens import TokensFull
from gpu_recovery.core.errors import RayUnreachable, SpecInvalid
from gpu_recovery.job_api.response import ApiError, ApiResponse
from gpu_recovery.job_api.submission import ForeignUser, KeyReused
from gpu_recovery.ports.errors import CursorInvalid, TooManyConflicts, TooManyReports, TryAgainSoon
from gpu_recovery.recovery import NotificationFailed

RETRY_AFTER_S = 5
BUSY = (TryAgainSoon, TooManyConflicts)
KINDS: tuple[type[Exception], ...] = (
    ApiError,
    SpecInvalid,
    KeyReused,
    TokensFull,
    CursorInvalid,
    NotificationFailed,
    TooManyReports,
    RayUnreachable,
    *BUSY,
)
"""Every other error is a defect, or an AWS that refuses us: it is raised."""


def response_to(error: Exception) -> ApiResponse:
    """The problem document for an error of one of `KINDS`."""
    return _refusal(error).response()


def _refusal(error: Exception) -> ApiError:
    match error:
        case ApiError():
            return error
        case ForeignUser():
            return ApiError(403, "foreign_user", "Not in another's name", error.detail, error.field)
        case KeyReused():
            return ApiError(
                422,
                "idempotency_mismatch",
                "Another specification",
                str(error),
                "Idempotency-Key",
                job_id=error.job_id,
            )
        case SpecInvalid():
            return ApiError(
                422,
                "invalid",
                "The request cannot be accepted",
                error.detail,
                error.field,
                errors=[{"field": error.field, "detail": error.detail}],
            )
        case TokensFull():
            return ApiError(409, "enough_tokens", "Enough tokens", str(error))
        case CursorInvalid():
            return ApiError(400, "bad_cursor", "Bad cursor", str(error), "cursor")
        case NotificationFailed():
            detail = f"{error}; what could not be said is kept and tried again"
            return ApiError(502, "unsaid", "Done, but not told", detail)
        case RayUnreachable():
            return ApiError(502, "ray_away", "The Ray cluster does not answer", str(error))
        case TooManyReports():
            return _later(429, "too_many", "Too many tries", str(error), error.retry_after_s)
    return _later(503, "busy", "Busy", f"{error}; ask again in {RETRY_AFTER_S} s", RETRY_AFTER_S)


def _later(status: int, code: str, title: str, detail: str, retry_after_s: int) -> ApiError:
    headers = {"Retry-After": str(retry_after_s)}
    return ApiError(status, code, title, detail, headers=headers, retry_after_s=retry_after_s)
