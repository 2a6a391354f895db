"""Requests made of openapi.json, to every operation: what is answered is what it says, and never a failure of ours."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
import schemathesis
from gpu_recovery.job_api.openapi import document
from gpu_recovery.job_api.router import ROUTES
from hypothesis import given
from hypothesis import strategies as st
from schemathesis.checks import CheckFunction
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.aws.records import JOB, A
from tests.fuzz.conftest import World
from tests.fuzz.wsgi_gateway import gateway
from tests.lambdas.api_gateway import TOKEN
from tests.tiers import examples

pytestmark = pytest.mark.filterwarnings("ignore::Warning")
OPERATION_WEIGHT = 0.3
"""There are many operations, and each request sends several of its own to moto."""
SCHEMA = schemathesis.openapi.from_dict(document(ROUTES))
OPERATIONS = {f"{one.ok().method.upper()} {one.ok().path}": one.ok() for one in SCHEMA.get_all_operations()}
KNOWN = {"job_id": JOB, "instance_id": A, "user": "ana", "token_id": "0123456789ab", "name": "gpu-0"}
CHECKS: list[CheckFunction] = [
    schemathesis.checks.not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
SENT = {"Authorization": f"Bearer {TOKEN}"}


def test_every_route_is_an_operation() -> None:
    """And every operation a route."""
    routed = {f"{route.method} {route.path}".replace("<", "{").replace(">", "}") for route in ROUTES}
    assert set(OPERATIONS) == routed and len(routed) == len(ROUTES)


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_answers_as_it_is_described(world: World, name: str) -> None:
    """Status, kind and shape of every answer are in the description, and no answer is 5xx."""
    operation: Any = OPERATIONS[name]
    app = gateway(lambda event: world.functions.call("job_api", event))
    world.functions.aws.answers["GetQueueAttributes"] = lambda asked: {
        "Attributes": {"ApproximateNumberOfMessages": "0"}
    }
    seen: Counter[int] = Counter()
    profile = examples(OPERATION_WEIGHT)

    @profile
    @given(operation.as_strategy(), st.booleans())
    def each(case: Any, known: bool) -> None:
        if known and case.path_parameters:
            case.path_parameters |= {key: KNOWN[key] for key in case.path_parameters}
        response = case.call_and_validate(app=app, headers=SENT, checks=CHECKS)
        seen[response.status_code] += 1
        if world.writes():
            world.begin_again()

    each()
    assert seen.total() >= profile.max_examples or len(operation.body) == 0


def test_the_description_is_served_to_everybody(world: World) -> None:
    """Without a token, as it is committed."""
    event = {
        "version": "2.0",
        "routeKey": "ANY /{proxy+}",
        "rawPath": "/api/v2/openapi.json",
        "rawQueryString": "",
        "headers": {},
        "isBase64Encoded": False,
        "requestContext": {
            "http": {"method": "GET", "path": "/api/v2/openapi.json"},
            "stage": "$default",
            "requestId": "r-1",
        },
    }
    answer = world.functions.call("job_api", event)
    assert answer["statusCode"] == 200 and json.loads(answer["body"]) == document(ROUTES)
    assert world.functions.aws.calls == []
