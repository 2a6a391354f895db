"""Router of the job API: the table of all routes, and the processing of a request."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from gpu_recovery.job_api.authentication import NO_CALLER, caller_of
from gpu_recovery.job_api.dependencies import Dependencies
from gpu_recovery.job_api.errors import BUSY, KINDS, response_to
from gpu_recovery.job_api.request import Request, Route
from gpu_recovery.job_api.response import ApiError, ApiResponse
from gpu_recovery.job_api.routes import (
    dead_letters,
    diagnoses,
    event_records,
    events,
    fleet,
    fleet_map,
    gpu_locks,
    incidents,
    instance_checks,
    instance_gauges,
    instance_list,
    instances,
    job_actions,
    job_lists,
    jobs,
    logs,
    overview,
    queue,
    quotas,
    sessions,
    summary,
    timeline,
    user_tokens,
    users,
)

ID_CHARACTERS_MAX = 255
"""Upper bound of the characters of an id in the path."""
OPENAPI = "/api/v2/openapi.json"
OPENAPI_FILE = Path(__file__).with_name("openapi.json")
"""The document as `docs/generate_openapi.py` wrote it."""
_RESOURCE_ROUTES = (
    *jobs.ROUTES,
    *job_lists.ROUTES,
    *job_actions.ROUTES,
    *logs.ROUTES,
    *diagnoses.ROUTES,
    *queue.ROUTES,
    *quotas.ROUTES,
    *instance_list.ROUTES,
    *instances.ROUTES,
    *instance_checks.ROUTES,
    *instance_gauges.ROUTES,
    *users.ROUTES,
    *user_tokens.ROUTES,
    *sessions.ROUTES,
    *fleet.ROUTES,
    *fleet_map.ROUTES,
    *overview.ROUTES,
    *dead_letters.ROUTES,
    *gpu_locks.ROUTES,
    *events.ROUTES,
    *event_records.ROUTES,
    *incidents.ROUTES,
    *timeline.ROUTES,
    *summary.ROUTES,
)


def read_openapi(dependencies: Dependencies, request: Request) -> ApiResponse:
    """Return the OpenAPI document of all routes."""
    return ApiResponse(200, _openapi())


@cache
def _openapi() -> Any:
    return json.loads(OPENAPI_FILE.read_text(encoding="utf-8"))


ROUTES = (
    *_RESOURCE_ROUTES,
    Route("GET", OPENAPI, read_openapi, "Read the OpenAPI document", {200: "OpenApi"}, needs=None),
)


def serve(
    dependencies: Dependencies,
    route: Route,
    path: str,
    named: Mapping[str, str],
    query: Mapping[str, str],
    headers: Mapping[str, str],
    user_arn: str,
    read: Callable[[], str],
) -> ApiResponse:
    """Return the response of `route`, or a problem document.

    The caller is authenticated before any other part of the request is read. Errors of the types in `errors.KINDS`
    become problem documents. Every other error is raised, and the resolver answers with 500.

    Args:
        dependencies: what the route may use.
        route: the route that the path matched.
        path: path of the request.
        named: variable parts of the path, which may be percent-encoded.
        query: parameters of the query.
        headers: headers; upper and lower case of their names make no difference.
        user_arn: the signer that API Gateway authorized, "" if it authorized none.
        read: returns the body as text, or raises ValueError if the body is not text.
    """
    try:
        lower = {name.lower(): value for name, value in headers.items()}
        # With principals no route is open: API Gateway authorizes every request.
        is_open = route.needs is None and dependencies.principals is None
        caller = NO_CALLER if is_open else caller_of(dependencies, lower.get("authorization", ""), user_arn)
        if not caller.may(route.needs):
            detail = f"this request needs the role {route.needs}, and {caller.name} has the role {caller.role}"
            raise ApiError(403, "role_too_low", "Not allowed", detail)
        # API Gateway decodes every escape of a path but %25. Other servers decode none.
        parts = {name: unquote(value) for name, value in named.items()}
        if not all(part.isascii() and part.isprintable() and len(part) <= ID_CHARACTERS_MAX for part in parts.values()):
            detail = f"an id has at most {ID_CHARACTERS_MAX} printable ASCII characters"
            raise ApiError(404, "no_such_thing", "Not found", detail)
        return route.serve(dependencies, Request(route.method, path, parts, query, route.kinds, lower, read, caller))
    except KINDS as error:
        if isinstance(error, BUSY):
            dependencies.log.warning("busy", exc_info=error)
        return response_to(error)
