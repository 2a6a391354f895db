"""HTTP resolver: connects the routes of the API to events of API Gateway through Powertools."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from aws_lambda_powertools.event_handler.exceptions import NotFoundError

from gpu_recovery.auth.principals import user_arn
from gpu_recovery.aws.http_response import response_of
from gpu_recovery.aws.item_codec import ItemUnreadable
from gpu_recovery.aws.swagger_ui import add_swagger_ui
from gpu_recovery.job_api.dependencies import Dependencies
from gpu_recovery.job_api.errors import failure
from gpu_recovery.job_api.request import Route
from gpu_recovery.job_api.response import ApiError
from gpu_recovery.job_api.router import serve

WITH_SLASHES = frozenset({"job_id", "incident_id", "user"})
"""Variable parts of a path that may contain a slash. API Gateway decodes the path, so `%2F` arrives as a slash."""
SHOWN_MAX = 200
"""Characters of an unknown path that the answer repeats."""


def resolver(routes: Iterable[Route], dependencies: Callable[[], Dependencies]) -> APIGatewayHttpResolver:
    """Create a resolver for `routes`.

    Args:
        routes: the routes of the API.
        dependencies: returns the dependencies of the routes. It is called at each request.

    Returns:
        A resolver that also serves Swagger UI, and answers unknown routes (404), methods that a path does not have
        (405), unreadable records (500) and every other error (500).
    """
    app = APIGatewayHttpResolver()

    def handler_of(route: Route) -> Callable[..., Response[str]]:
        def respond(**parameters: str) -> Response[str]:
            request = app.current_event
            query, headers = request.query_string_parameters or {}, request.headers or {}
            signer = user_arn(request.raw_event)
            answer = serve(
                dependencies(),
                route,
                request.path,
                parameters,
                query,
                headers,
                signer,
                lambda: request.decoded_body or "",
            )
            return response_of(answer, request.http_method, headers.get("if-none-match", ""))

        return respond

    # The longest path comes first: /jobs/team/run-17/logs is the log of team/run-17.
    handlers = [(route, handler_of(route)) for route in sorted(routes, key=lambda route: -route.path.count("/"))]
    for route, handler in handlers:
        app.route(route.path, method=route.method)(handler)

    def no_route(error: NotFoundError) -> Response[str]:
        """Answer a path that no route has as it is. Its ids may have slashes."""
        request = app.current_event
        for route, handler in handlers:
            found = _with_slashes(route.path, request.path) if route.method == request.http_method else None
            if found is not None:
                return handler(**found.groupdict())
        methods = {route.method for route, _ in handlers if _has_path(route.path, request.path)}
        if methods and request.http_method not in methods:
            allowed = ", ".join(sorted(methods))
            detail = f"{request.path[:SHOWN_MAX]} has no {request.http_method[:16]}; it has {allowed}"
            refused = ApiError(405, "no_such_method", "Method not allowed", detail, headers={"Allow": allowed})
            return response_of(refused.response(), request.http_method, "")
        detail = f"there is no {request.http_method[:16]} {request.path[:SHOWN_MAX]}"
        return response_of(ApiError(404, "no_such_route", "Not found", detail).response(), request.http_method, "")

    add_swagger_ui(app)
    _answer_errors(app, dependencies)
    app.not_found(no_route)
    return app


def _answer_errors(app: APIGatewayHttpResolver, dependencies: Callable[[], Dependencies]) -> None:
    """Answer unreadable records and every other error with 500, as problem documents."""

    def unreadable(error: ItemUnreadable) -> Response[str]:
        dependencies().log.error("unreadable", exc_info=error)
        answer = ApiError(500, "unreadable", "A record cannot be read", str(error)).response()
        return response_of(answer, app.current_event.http_method, "")

    def failed(error: Exception) -> Response[str]:
        """Log a defect or a refusal of AWS, and answer with the id of the request. API Gateway counts the 500."""
        dependencies().log.error("failed", exc_info=error)
        answer = failure(app.lambda_context.aws_request_id)
        return response_of(answer, app.current_event.http_method, "")

    app.exception_handler(ItemUnreadable)(unreadable)
    app.exception_handler(Exception)(failed)


def _has_path(path: str, asked: str) -> bool:
    """Return whether the path that is asked for is that of a route. An id in it has no slash."""
    return re.fullmatch(re.sub(r"<\w+>", "[^/]+", path), asked) is not None


def _with_slashes(path: str, asked: str) -> re.Match[str] | None:
    """Return the match of the path that is asked for with a route's path, whose ids may have slashes; None if none."""
    names = re.findall(r"<(\w+)>", path)
    if WITH_SLASHES.isdisjoint(names):
        return None
    for name in names:
        path = path.replace(f"<{name}>", f"(?P<{name}>{'.+' if name in WITH_SLASHES else '[^/]+'})")
    return re.fullmatch(path, asked)
