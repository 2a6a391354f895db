"""Requests made of openapi.json, to every operation: what is answered is what it says, and never a failure of ours."""

from __future__ import annotations

import json
from collections import Counter
from types import ModuleType
from typing import Any

import pytest
from gpu_recovery.job_api.router import ROUTES
from hypothesis import given
from hypothesis import strategies as st

from tests.aws.records import JOB, A
from tests.fuzz.conftest import World
from tests.fuzz.wsgi_gateway import gateway
from tests.lambdas.api_gateway import TOKEN
from tests.markdown import ROOT
from tests.tiers import examples

DESCRIPTION: dict[str, Any] = json.loads((ROOT / "docs/openapi.json").read_text(encoding="utf-8"))
"""tests/job_api/test_openapi_document.py shows that the file is fresh."""
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::Warning")]
OPERATION_WEIGHT = 0.3
"""There are many operations, and each request makes several calls of the store."""
ROUTED = [f"{route.method} {route.path}".replace("<", "{").replace(">", "}") for route in ROUTES]
"""The routes, as a description names them."""
KNOWN = {"job_id": JOB, "instance_id": A, "user": "ana", "token_id": "0123456789ab", "name": "gpu-0"} | {
    "incident_id": f"{JOB}--a01",
    "number": "1",
}
SENT = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def described() -> ModuleType:
    """The description's operations, and the checks of their answers."""
    from tests.fuzz import described_api  # noqa: PLC0415

    return described_api


@pytest.fixture(scope="module")
def operations(described: ModuleType) -> dict[str, Any]:
    """By method and path."""
    found: dict[str, Any] = described.operations(DESCRIPTION)
    return found


def test_every_route_is_an_operation(operations: dict[str, Any]) -> None:
    """And every operation a route."""
    assert set(operations) == set(ROUTED) and len(set(ROUTED)) == len(ROUTES)


@pytest.mark.parametrize("name", ROUTED)
def test_an_operation_answers_as_it_is_described(
    world: World, described: ModuleType, operations: dict[str, Any], name: str
) -> None:
    """Status, kind and shape of every answer are in the description, and no answer is 5xx."""
    operation = operations[name]
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
        response = case.call_and_validate(app=app, headers=SENT, checks=described.CHECKS)
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
    assert answer["statusCode"] == 200 and json.loads(answer["body"]) == DESCRIPTION
    assert world.functions.aws.calls == []
