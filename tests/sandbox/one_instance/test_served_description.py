"""The deployed job API answers as the description that it serves says.

This file is the last of its folder: the requests quarantine the instance and pause the fleet.
"""

from __future__ import annotations

from collections import Counter
from typing import Any
from urllib.parse import unquote

import httpx
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.sandbox.api_clients import operator
from tests.tiers import examples

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::Warning")]
SPEC = {"workload": "sft", "nnodes": 1, "n_gpus_per_node": 8, "task_definition": "gpu-training"}


@pytest.fixture(scope="module")
def known(state: dict[str, Any]) -> dict[str, str]:
    """A job, an instance, a user and a token of theirs that there are."""
    with operator(state) as client:
        token = client.post("/users/known/tokens", json={"role": "user"}).json()["id"]
        job = client.post("/jobs", json=SPEC | {"env": {"TOTAL_STEPS": "2000"}}).json()["job_id"]
        machine = client.get("/instances").json()["instances"][0]["instance_id"]
    named = {"job_id": job, "instance_id": machine, "user": "known", "token_id": token, "name": "gpu-7"}
    return named | {"incident_id": f"{job}--a01", "number": "1"}


@pytest.mark.parametrize(("role", "weight"), [("viewer", 0.042), ("user", 0.042), ("operator", 0.125)])
def test_the_deployed_api_answers_as_it_describes_itself(
    state: dict[str, Any], tokens: dict[str, str], known: dict[str, str], role: str, weight: float
) -> None:
    """Requests made of the description that it serves, to every operation.

    In the default tier the roles viewer and user send one request each, about a job and an instance that there are. Of
    the requests of the operator half are about these. Status, kind and shape of each answer are in the description, and
    none is 5xx.
    """
    from tests.fuzz.described_api import CHECKS, operations  # noqa: PLC0415

    described = httpx.get(f"{state['api_url']}/api/v2/openapi.json", timeout=35, trust_env=False).json()
    sent: Counter[str] = Counter()
    for operation in operations(described).values():

        @examples(weight)
        @given(operation.as_strategy(), st.sampled_from((True, False)))
        def each(case: Any, is_known: bool) -> None:
            if is_known and case.path_parameters:
                case.path_parameters |= {key: known[key] for key in case.path_parameters}
            # MiniStack's gateway answers a path with a line break itself; tests/fuzz/test_openapi.py has no gateway.
            assume(not any("\n" in unquote(str(value)) for value in case.path_parameters.values()))
            headers = {"authorization": f"Bearer {tokens[role]}"}
            case.call_and_validate(base_url=state["api_url"], headers=headers, checks=CHECKS)
            sent[case.operation.label] += 1

        each()
    described_n = sum(len(set(methods) & {"get", "put", "post", "delete"}) for methods in described["paths"].values())
    assert len(sent) == described_n
