"""The routes behind Powertools' resolver: events of API Gateway in, answers out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from aws_lambda_powertools.event_handler.exceptions import NotFoundError

from gpu_recovery.aws.item_codec import ItemUnreadable
from gpu_recovery.job_api.dependencies import Dependencies
from gpu_recovery.job_api.request import Route
from gpu_recovery.job_api.response import ApiError, ApiResponse
from gpu_recovery.job_api.router import serve

SHOWN_MAX = 200


def resolver(routes: Iterable[Route], desk: Callable[[], Dependencies]) -> APIGatewayHttpResolver:
    """A resolver that knows `routes`; `desk` is asked for at each request."""
    app = APIGatewayHttpResolver()

    def served(route: Route) -> Callable[..., Response[str]]:
        def respond(**named: str) -> Response[str]:
            asked = app.current_event
            query, headers = asked.query_string_parameters or {}, asked.headers or {}
            return _sent(serve(desk(), route, asked.path, named, query, headers, lambda: asked.decoded_body or ""))

        return respond

    for route in routes:
        app.route(route.path, method=route.method)(served(route))

    def unreadable(error: ItemUnreadable) -> Response[str]:
        desk().log.error("unreadable", exc_info=error)
        return _sent(ApiError(500, "unreadable", "A record cannot be read", str(error)).response())

    def no_route(error: NotFoundError) -> Response[str]:
        asked = app.current_event
        detail = f"there is no {asked.http_method[:16]} {asked.path[:SHOWN_MAX]}"
        return _sent(ApiError(404, "no_such_route", "Not found", detail).response())

    app.exception_handler(ItemUnreadable)(unreadable)
    app.not_found(no_route)
    return app


def _sent(answer: ApiResponse) -> Response[str]:
    headers: dict[str, Any] = dict(answer.headers)
    return Response(answer.status, answer.kind, answer.text, headers=headers)
