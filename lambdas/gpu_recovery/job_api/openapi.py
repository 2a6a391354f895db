"""OpenAPI description of the job API, generated from the table of routes.

The API serves the same document that docs/openapi.json holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

from gpu_recovery.job_api.request import Parameter, Route
from gpu_recovery.job_api.request_schemas import REQUEST_SCHEMAS
from gpu_recovery.job_api.response import JSON, PROBLEM
from gpu_recovery.job_api.response_schemas import RESPONSE_SCHEMAS
from gpu_recovery.job_api.schema_types import TEXT, ref

VERSION = "2.0.0"
"""Version of the job API in openapi.json."""
_PATH_NAME = re.compile(r"<(\w+)>")
PROBLEMS = (400, 401, 403, 404, 409, 412, 413, 422, 428, 429, 500, 502, 503)
"""Statuses of all problem documents."""
_ALWAYS = (503,)
"""Statuses of problem documents that every route may answer with: AWS or a record is too busy."""


def document(routes: Iterable[Route]) -> dict[str, Any]:
    """Return the whole OpenAPI document of `routes`."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(_PATH_NAME.sub(r"{\1}", route.path), {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.0.3",
        "info": {
            "title": "gpu-recovery",
            "version": VERSION,
            "description": "Training jobs on Amazon ECS: the queue, recovery from GPU faults, instances.",
            "license": {"name": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": REQUEST_SCHEMAS | RESPONSE_SCHEMAS,
            "responses": {f"Problem{status}": _problem(status) for status in PROBLEMS},
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "the operator's secret, or a token of a user; a deployment with"
                    " gpu-recovery:api_auth = iam takes signatures instead (SigV4, service execute-api)",
                },
            },
        },
        "security": [{"token": []}],
    }


def _operation(route: Route) -> dict[str, Any]:
    path_names = _PATH_NAME.findall(route.path)
    parameters = [_path_parameter(name) for name in path_names] + [_parameter(parameter) for parameter in route.query]
    operation: dict[str, Any] = {"operationId": route.serve.__name__, "summary": route.summary}
    if route.path.startswith("/api/v2/users/"):
        operation["operationId"] = route.serve.__name__.replace("token", "user_token")
    if parameters:
        operation["parameters"] = parameters
    if route.takes:
        media_types = (JSON, "application/yaml") if route.also_yaml else (JSON,)
        content = {media_type: {"schema": ref(route.takes)} for media_type in media_types}
        operation["requestBody"] = {"required": route.needs_body, "content": content}
    responses = {str(status): _response(status, name) for status, name in route.answers.items()}
    operation["responses"] = responses | {
        str(status): {"$ref": f"#/components/responses/Problem{status}"}
        for status in _problem_statuses(route, path_names)
    }
    if route.needs is None:
        operation["security"] = []
    else:
        operation["x-role"] = route.needs.value
    return operation


def _problem_statuses(route: Route, path_names: list[str]) -> list[int]:
    statuses = {*_ALWAYS, *route.refuses}
    if route.needs is not None:
        statuses |= {401, 403, 429}
    if path_names:
        statuses |= {404}
    if route.query or route.takes:
        statuses |= {400}
    if route.method != "GET" and route.needs is not None:
        statuses |= {502}
    if route.path != "/api/v2/openapi.json":
        statuses |= {500}
    return sorted(statuses)


def _response(status: int, name: str) -> dict[str, Any]:
    return {"description": HTTPStatus(status).phrase, "content": {JSON: {"schema": ref(name)}}}


def _problem(status: int) -> dict[str, Any]:
    return {"description": HTTPStatus(status).phrase, "content": {PROBLEM: {"schema": ref("Problem")}}}


def _path_parameter(name: str) -> dict[str, Any]:
    schema = {**TEXT, "minLength": 1, "maxLength": 255}
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _parameter(parameter: Parameter) -> dict[str, Any]:
    description = {
        "name": parameter.name,
        "in": parameter.where,
        "description": parameter.description,
        "schema": dict(parameter.kind),
    }
    return {**description, "required": True} if parameter.required else description
