"""Problem documents for errors of routes: the errors that a client can act on."""

from __future__ import annotations

from gpu_recovery.auth.tokens import TokensFull
from gpu_recovery.core.errors import RayUnreachable, SpecInvalid
from gpu_recovery.job_api.response import ApiError, ApiResponse
from gpu_recovery.job_api.submission import ForeignUser, KeyReused, PriorityTooHigh
from gpu_recovery.job_api.validation import BodyInvalid
from gpu_recovery.ports.errors import CursorInvalid, NotificationFailed, TooManyConflicts, TryAgainSoon, Unavailable

RETRY_AFTER_S = 5
"""Seconds after which a client may repeat a request that was answered with 503."""
BUSY = (TryAgainSoon, TooManyConflicts, Unavailable)
"""Errors that pass by themselves: AWS or a record is too busy."""
KINDS: tuple[type[Exception], ...] = (
    ApiError,
    SpecInvalid,
    KeyReused,
    TokensFull,
    CursorInvalid,
    NotificationFailed,
    RayUnreachable,
    *BUSY,
)
"""Errors that a client can act on. Any other error is a defect or a refusal of AWS, and is answered with `failure`."""


def problems_of(error: SpecInvalid) -> tuple[tuple[str, str], ...]:
    """Return everything that is wrong in a request: each field, and what it must be."""
    return error.problems if isinstance(error, BodyInvalid) else ((error.field, error.detail),)


def response_to(error: Exception) -> ApiResponse:
    """Return the problem document for an error of one of the types in `KINDS`."""
    return _api_error(error).response()


def failure(request_id: str) -> ApiResponse:
    """Return the problem document for a defect or a refusal of AWS. The log has the error under the request id."""
    detail = f"the request failed; the log of the job API has the error under the request id {request_id}"
    return ApiError(500, "failed", "The request failed", detail).response()


def _api_error(error: Exception) -> ApiError:
    match error:
        case ApiError():
            return error
        case ForeignUser():
            return ApiError(403, "foreign_user", "Not for another user", error.detail, error.field)
        case PriorityTooHigh():
            return ApiError(403, "priority_too_high", "Priority too high", error.detail, error.field)
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
                errors=[{"field": field, "detail": detail} for field, detail in problems_of(error)],
            )
        case TokensFull():
            return ApiError(409, "enough_tokens", "Enough tokens", str(error))
        case CursorInvalid():
            return ApiError(400, "bad_cursor", "Bad cursor", str(error), "cursor")
        case NotificationFailed():
            detail = f"{error}; the message stays saved and is tried again"
            return ApiError(502, "unsaid", "Done, but a message is not sent yet", detail)
        case RayUnreachable():
            return ApiError(502, "ray_away", "The Ray cluster does not answer", str(error))
    headers = {"Retry-After": str(RETRY_AFTER_S)}
    detail = f"{error}; try again in {RETRY_AFTER_S} s"
    return ApiError(503, "busy", "Busy", detail, headers=headers, retry_after_s=RETRY_AFTER_S)
