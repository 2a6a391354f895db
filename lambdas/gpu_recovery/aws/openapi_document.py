"""OpenAPI 3.1 document of the job API: Powertools generates it from the table of routes and the models.

`docs/generate_openapi.py` writes the document into two files. The function serves one of them, so it neither imports
this module nor the models of responses.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from inspect import Parameter as Argument
from typing import Annotated, Any

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver
from aws_lambda_powertools.event_handler.openapi.models import HTTPBearer, License, Tag
from aws_lambda_powertools.event_handler.openapi.params import Body, Header, Path, Query
from aws_lambda_powertools.event_handler.openapi.types import OpenAPIResponse
from pydantic import WithJsonSchema

from gpu_recovery.auth.tokens import INSTANCE_ID, USER_NAME
from gpu_recovery.core.gpu_lock import NAME as LOCK_NAME
from gpu_recovery.job_api.models import requests
from gpu_recovery.job_api.models.base import GatewayMessage, Problem
from gpu_recovery.job_api.models.job_spec import JobSpec
from gpu_recovery.job_api.models.responses import RESPONSES
from gpu_recovery.job_api.request import Parameter, Route
from gpu_recovery.job_api.response import JSON, PROBLEM
from gpu_recovery.job_api.routes.instance_checks import NUMBER

YAML = "application/yaml"
TAGS = {
    "jobs": "Submit jobs, read them, and act on them.",
    "diagnoses": "Diagnose an attempt, a case or a log.",
    "queue": "The waiting jobs in their order, each with its wait reason.",
    "quotas": "Limits of instances and of running jobs.",
    "instances": "GPU instances, their health checks, gauges and agents.",
    "fleet": "The limits of repairs, and the map of all instances.",
    "overview": "The figures for operators on a single page.",
    "events": "The event history.",
    "incidents": "Failures with their recoveries.",
    "summary": "GPU-hours, recoveries and incidents of the last days.",
    "users": "Users and their tokens.",
    "sessions": "Sessions of the web console.",
    "me": "The caller.",
    "locks": "Locks between the processes of a job.",
    "dead-letters": "Messages that no function could process.",
    "openapi.json": "This document.",
}
"""Tags in their order, each with its description. The tag of a route is the first part of its path."""
PATH_PATTERNS = {
    "instance_id": INSTANCE_ID.pattern,
    "user": USER_NAME.pattern,
    "name": LOCK_NAME.pattern,
    "token_id": "[0-9a-z]{12}",
    "number": NUMBER.pattern,
}
"""Patterns of the parts of a path. Ids of adopted jobs, and of their incidents, may have any printable character."""
ANY_ID = "[ -~]{1,255}"
PROBLEMS = (400, 401, 403, 404, 405, 409, 412, 413, 422, 428, 429, 500, 502, 503)
"""Statuses of all problem documents."""
OF_THE_GATEWAY = (429, 500, 503)
"""Statuses that API Gateway also answers with by itself, in its own form. An HTTP API has no setting for that form."""
_NAME = re.compile(r"<(\w+)>")
_GENERATED = ("HTTPValidationError", "ValidationError", "ResponseValidationError")
"""Schemas that Powertools adds for a validation that this API does not use."""


def document(routes: Iterable[Route], version: str, examples: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the OpenAPI document of `routes`.

    Args:
        routes: the routes of the API.
        version: version of the product.
        examples: body of the request and of the first answer, `request` and `response`, by operation id.
    """
    app, described = APIGatewayHttpResolver(), [route for route in routes if route.answers]
    for route in described:
        _add(app, route)
    schema = app.get_openapi_schema(
        title="gpu-recovery",
        version=version,
        description="Training jobs on Amazon ECS: the queue, recovery from GPU faults, instances.",
        license_info=License(name="Apache-2.0", identifier="Apache-2.0"),
        tags=[Tag(name=name, description=text) for name, text in TAGS.items()],
        security_schemes={
            "token": HTTPBearer(
                description="The operator token, or a token of a user. A deployment with gpu-recovery:api_auth = iam"
                " takes signed requests instead (SigV4, service execute-api)."
            )
        },
        security=[{"token": []}],
    )
    made: dict[str, Any] = _plain(schema.model_dump(mode="json", by_alias=True, exclude_none=True))
    for route in described:
        operation = made["paths"][_NAME.sub(r"{\1}", route.path)][route.method.lower()]
        _complete(operation, route, examples.get(operation["operationId"], {}))
    schemas = made["components"]["schemas"]
    for name in _GENERATED:
        schemas.pop(name, None)
    made["components"]["responses"] = {f"Problem{status}": _problem(status) for status in PROBLEMS}
    return made


def operation_id(route: Route) -> str:
    """Return the operation id of a route. The routes of tokens share their functions."""
    name = route.serve.__name__
    return name.replace("token", "user_token") if route.path.startswith("/api/v2/users/") else name


def _add(app: APIGatewayHttpResolver, route: Route) -> None:
    """Add a route to `app` with a function whose signature describes the request."""
    arguments = [_argument(name, str, Path(pattern=_path_pattern(name))) for name in _NAME.findall(route.path)]
    for parameter in route.query:
        arguments.append(_described(parameter))
    if route.takes:
        model = JobSpec if route.takes == JobSpec.__name__ else getattr(requests, route.takes)
        arguments.append(_argument("body", model, Body()))

    def described() -> None:
        """Stand for the function of the route."""

    described.__signature__ = inspect.Signature(arguments)  # type: ignore[attr-defined]
    responses: dict[int, OpenAPIResponse] = {
        status: {"description": HTTPStatus(status).phrase, "content": {JSON: {"model": RESPONSES[name]}}}
        for status, name in route.answers.items()
    }
    responses[500] = {"description": "", "content": {PROBLEM: {"model": Problem}, JSON: {"model": GatewayMessage}}}
    extensions = {} if route.needs is None else {"x-role": route.needs.value}
    app.route(
        route.path,
        method=route.method,
        summary=route.summary,
        description=_description(route.serve),
        tags=[route.path.split("/")[3]],
        operation_id=operation_id(route),
        responses=responses,
        security=[] if route.needs is None else None,
        openapi_extensions=extensions,
    )(described)


def _argument(name: str, kind: Any, about: Any, default: Any = Argument.empty) -> Argument:
    return Argument(name, Argument.KEYWORD_ONLY, annotation=Annotated[kind, about], default=default)


def _described(parameter: Parameter) -> Argument:
    where = Header if parameter.where == "header" else Query
    kind = Annotated[str | None, WithJsonSchema(dict(parameter.kind))]
    name = re.sub(r"\W", "_", parameter.name).lower() + "_"
    about = where(alias=parameter.name, description=parameter.description)
    return _argument(name, kind, about, Argument.empty if parameter.required else None)


def _path_pattern(name: str) -> str:
    return f"^({PATH_PATTERNS.get(name, ANY_ID)})$"


def _description(serve: Callable[..., Any]) -> str:
    """Return the description of an operation: the docstring of its function without the errors."""
    text = inspect.getdoc(serve) or ""
    return " ".join(re.split(r"\n\n(?:Args|Raises|Returns):", text)[0].split())


def _complete(operation: dict[str, Any], route: Route, example: Mapping[str, Any]) -> None:
    """Add what Powertools cannot generate: names of headers, YAML, problem documents and examples."""
    spelled = {parameter.name.lower(): parameter.name for parameter in route.query if parameter.where == "header"}
    for parameter in operation.get("parameters", ()):
        parameter["name"] = spelled.get(parameter["name"], parameter["name"])
        parameter["schema"].pop("description", None)
    responses = operation["responses"]
    del responses["500"]
    first = responses[str(next(iter(route.answers)))]["content"][JSON]
    if "response" in example:
        first["example"] = example["response"]
    if route.takes:
        body = operation["requestBody"]
        body["required"] = route.needs_body
        if "request" in example:
            body["content"][JSON]["example"] = example["request"]
        if route.also_yaml:
            body["content"][YAML] = body["content"][JSON]
    for status in _problem_statuses(route):
        responses[str(status)] = {"$ref": f"#/components/responses/Problem{status}"}
    if route.needs is None:
        operation["security"] = []


def _problem_statuses(route: Route) -> list[int]:
    """Return the statuses of the problem documents of a route. AWS or a record may always be too busy (503)."""
    statuses = {503, *route.refuses}
    if route.needs is not None:
        statuses |= {401, 403, 429}
    if "<" in route.path:
        statuses |= {404}
    if route.query or route.takes:
        statuses |= {400}
    if route.method != "GET" and route.needs is not None:
        statuses |= {502}
    if not route.path.endswith("/openapi.json"):
        statuses |= {500}
    return sorted(statuses)


def _problem(status: int) -> dict[str, Any]:
    content = {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    if status in OF_THE_GATEWAY:
        content[JSON] = {"schema": {"$ref": "#/components/schemas/GatewayMessage"}}
    return {"description": HTTPStatus(status).phrase, "content": content}


def _plain(value: Any, *, of_names: bool = False) -> Any:
    """Return a part of the document without the titles of properties, and with whole numbers as integers.

    Args:
        value: the part.
        of_names: whether the keys of `value` are names of properties or schemas.
    """
    if isinstance(value, dict):
        return {
            key: _plain(each, of_names=key in ("properties", "schemas", "paths") and not of_names)
            for key, each in value.items()
            if of_names or key != "title" or "version" in value
        }
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
