"""Routes of quotas: read and replace the limits of instances and running jobs of users."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpu_recovery.auth.roles import Role
from gpu_recovery.core.queue.quota import QuotaLimits, parse_limits
from gpu_recovery.job_api.dependencies import Dependencies
from gpu_recovery.job_api.errors import problems_of
from gpu_recovery.job_api.request import TEXT, Parameter, Request, Route
from gpu_recovery.job_api.response import ApiError, ApiResponse
from gpu_recovery.job_api.validation import BodyInvalid, body_of
from gpu_recovery.ports.errors import StaleRecord

if TYPE_CHECKING:
    from gpu_recovery.job_api.models.requests import UpdateQuotasRequest


def read_quotas(dependencies: Dependencies, request: Request) -> ApiResponse:
    """Return the limits and their revision. A request that changes the limits must name this revision."""
    document, revision = dependencies.recovery.store.load_limits()
    return _answer(parse_limits(document), revision)


def write_quotas(dependencies: Dependencies, request: Request) -> ApiResponse:
    """Replace the limits if they were not changed since the revision in `If-Match`, and return them.

    Raises:
        ApiError: 400 or 428, `If-Match` is malformed or missing; 412, the limits were changed; 422, they are malformed.
    """
    read_revision = _revision(request)
    limits = _limits(request)
    try:
        revision = dependencies.recovery.store.save_limits(limits.document(), read_revision)
    except StaleRecord as error:
        detail = f"{error}; read them again, and repeat your change"
        raise ApiError(412, "changed_meanwhile", "Changed meanwhile", detail, "If-Match") from error
    dependencies.recovery.actions.poke_scheduler(f"#limits/{revision}")
    dependencies.log.info("limits_changed", extra={"by": request.caller.name, "revision": revision})
    return _answer(limits, revision)


def _answer(limits: QuotaLimits, revision: int) -> ApiResponse:
    body: dict[str, Any] = {"limits": limits.document(), "revision": revision}
    return ApiResponse(200, body, {"ETag": f'"{revision}"'})


def _limits(request: Request) -> QuotaLimits:
    try:
        body: UpdateQuotasRequest = body_of(request.text(), "UpdateQuotasRequest")
    except BodyInvalid as error:
        problems = [{"field": field.removeprefix("limits."), "detail": detail} for field, detail in problems_of(error)]
        first = problems[0]
        raise ApiError(422, "bad_limits", "Not limits", first["detail"], first["field"], errors=problems) from error
    return parse_limits(body.limits.model_dump())


def _revision(request: Request) -> int:
    text = request.headers.get("if-match")
    if text is None:
        detail = "send the revision that you have read as If-Match, so that no change of another caller is lost"
        raise ApiError(428, "if_match_needed", "If-Match is needed", detail, "If-Match")
    digits = text.strip().removeprefix('"').removesuffix('"')
    if not (digits.isascii() and digits.isdecimal()) or len(digits) > 9:
        raise ApiError(400, "bad_if_match", "Bad If-Match", "must be the revision that you have read", "If-Match")
    return int(digits)


_IF_MATCH = (Parameter("If-Match", "Revision that was read.", TEXT, where="header", required=True),)
ROUTES = (
    Route("GET", "/api/v2/quotas", read_quotas, "Read the limits of instances and jobs", {200: "Quotas"}),
    Route(
        "PUT",
        "/api/v2/quotas",
        write_quotas,
        "Replace the limits of instances and jobs",
        {200: "Quotas"},
        Role.OPERATOR,
        _IF_MATCH,
        "UpdateQuotasRequest",
        needs_body=True,
        refuses=(412, 413, 422, 428),
    ),
)
