"""Every route there is, and how a request is served by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from urllib.parse import unquote

from gpu_recovery.job_api import openapi
from gpu_recovery.job_api.authentication import NO_CALLER, caller_of
from gpu_recovery.job_api.dependencies import Dependencies
from gpu_recovery.job_api.errors import BUSY, KINDS, response_to
from gpu_recovery.job_api.request import Request, Route
from gpu_recovery.job_api.response import ApiError, ApiResponse
from gpu_recovery.job_api.routes import (
    dead_letters,
    diagnoses,
    fleet,
    gpu_locks,
    instances,
    job_actions,
    jobs,
    logs,
    queue,
    quotas,
    user_tokens,
)

ID_CHARACTERS_MAX = 255
OPENAPI = "/api/v2/openapi.json"
_PARTS = (
    *jobs.ROUTES,
    *job_actions.ROUTES,
    *logs.ROUTES,
    *diagnoses.ROUTES,
    *queue.ROUTES,
    *quotas.ROUTES,
    *instances.ROUTES,
    *user_tokens.ROUTES,
    *fleet.ROUTES,
    *dead_letters.ROUTES,
    *gpu_locks.ROUTES,
)


def read_openapi(desk: Dependencies, request: Request) -> ApiResponse:
    """What can be asked, as OpenAPI describes it."""
    return ApiResponse(200, openapi.document(ROUTES))


ROUTES = (
    *_PARTS,
    Route("GET", OPENAPI, read_openapi, "What can be asked", {200: "OpenApi"}, needs=None),
)


def serve(
    dependencies: Dependencies,
    route: Route,
    path: str,
    named: Mapping[str, str],
    query: Mapping[str, str],
    headers: Mapping[str, str],
    read: Callable[[], str],
) -> ApiResponse:
    """The answer of `route`, or the problem document that says why there is none.

    Who calls is known before anything else is looked at. What is no fault of the request's is raised.
    """
    try:
        lower = {name.lower(): value for name, value in headers.items()}
        caller = NO_CALLER if route.needs is None else caller_of(dependencies, lower.get("authorization", ""))
        if not caller.may(route.needs):
            detail = f"this takes the role {route.needs}, and {caller.name} has the role {caller.role}"
            raise ApiError(403, "role_too_low", "Not allowed", detail)
        # The job ids of people may hold a slash, which a path carries as %2F.
        parts = {name: unquote(value) for name, value in named.items()}
        if not all(one.isascii() and one.isprintable() and len(one) <= ID_CHARACTERS_MAX for one in parts.values()):
            detail = f"an id has at most {ID_CHARACTERS_MAX} printable ASCII characters"
            raise ApiError(404, "no_such_thing", "Not found", detail)
        return route.serve(dependencies, Request(route.method, path, parts, query, lower, read, caller))
    except KINDS as error:
        if isinstance(error, BUSY):
            dependencies.log.warning("busy", exc_info=error)
        return response_to(error)
