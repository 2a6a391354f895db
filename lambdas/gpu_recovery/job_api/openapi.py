"""openapi.json, made of the table of routes: what is served, what is committed and what is routed is one thing."""

from __future__ import annotations

import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

from gpu_recovery.job_api.request import Parameter, Route
from gpu_recovery.job_api.response import JSON, PROBLEM
from gpu_recovery.job_api.schemas import SCHEMAS, TEXT, ref

VERSION = "2.0.0"
_NAMED = re.compile(r"<(\w+)>")
PROBLEMS = (400, 401, 403, 404, 409, 412, 413, 422, 428, 429, 500, 502, 503)
_ALWAYS = (503,)
"""What any route may answer besides: AWS, or a record, is too busy."""


def document(routes: Iterable[Route]) -> dict[str, Any]:
    """The whole of openapi.json."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(_NAMED.sub(r"{\1}", route.path), {})[route.method.lower()] = _operation(route)
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
            "schemas": SCHEMAS,
            "responses": {f"Problem{status}": _problem(status) for status in PROBLEMS},
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "the operator's secret, or a token of a user",
                },
            },
        },
        "security": [{"token": []}],
    }


def _operation(route: Route) -> dict[str, Any]:
    named = _NAMED.findall(route.path)
    parameters = [_path_parameter(name) for name in named] + [_parameter(one) for one in route.query]
    made: dict[str, Any] = {"operationId": route.serve.__name__, "summary": route.summary}
    if route.path.startswith("/api/v2/users/"):
        made["operationId"] = route.serve.__name__.replace("token", "user_token")
    if parameters:
        made["parameters"] = parameters
    if route.takes:
        kinds = (JSON, "application/yaml") if route.also_yaml else (JSON,)
        content = {kind: {"schema": ref(route.takes)} for kind in kinds}
        made["requestBody"] = {"required": route.needs_body, "content": content}
    answers = {str(status): _answer(status, name) for status, name in route.answers.items()}
    made["responses"] = answers | {
        str(status): {"$ref": f"#/components/responses/Problem{status}"} for status in _refusals(route, named)
    }
    if route.needs is None:
        made["security"] = []
    else:
        made["x-role"] = route.needs.value
    return made


def _refusals(route: Route, named: list[str]) -> list[int]:
    found = {*_ALWAYS, *route.refuses}
    if route.needs is not None:
        found |= {401, 403, 429}
    if named:
        found |= {404}
    if route.query or route.takes:
        found |= {400}
    if route.method != "GET" and route.needs is not None:
        found |= {502}
    if route.path != "/api/v2/openapi.json":
        found |= {500}
    return sorted(found)


def _answer(status: int, name: str) -> dict[str, Any]:
    return {"description": HTTPStatus(status).phrase, "content": {JSON: {"schema": ref(name)}}}


def _problem(status: int) -> dict[str, Any]:
    return {"description": HTTPStatus(status).phrase, "content": {PROBLEM: {"schema": ref("Problem")}}}


def _path_parameter(name: str) -> dict[str, Any]:
    schema = {**TEXT, "minLength": 1, "maxLength": 255}
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _parameter(one: Parameter) -> dict[str, Any]:
    made = {"name": one.name, "in": one.where, "description": one.description, "schema": dict(one.kind)}
    return {**made, "required": True} if one.required else made
