"""The job side of the API as it is deployed, through its gateway, with the rights of its role."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings

from sandbox import sandbox

from .ministack_server import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::Warning")]
EXAMPLES = 2
ENDED = {"SUCCEEDED", "FAILED", "CANCELED"}
YAML = """\
workload: sft   # plain YAML
nnodes: 1
n_gpus_per_node: 8
task_definition: gpu-training
env: {TOTAL_STEPS: "5"}
checkpoint_dir: /tmp/checkpoints
"""
SPEC = {"workload": "sft", "nnodes": 1, "n_gpus_per_node": 8, "task_definition": "gpu-training"}


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """A sandbox with one instance, which is known already, and how to reach it."""
    directory: Path = tmp_path_factory.mktemp("jobs")
    try:
        up = sandbox.up(directory, instances=1)
        with operator(up) as client:
            wait_for(lambda: client.get("/instances").json()["instances"], within_s=90)
        yield up
    finally:
        sandbox.down(directory)


def operator(state: dict[str, Any], token: str = "") -> httpx.Client:
    """A client of the API with the operator's token, or another."""
    headers = {"authorization": f"Bearer {token or state['operator_token']}"}
    return httpx.Client(base_url=f"{state['api_url']}/api/v2", headers=headers, timeout=35, trust_env=False)


def test_a_job_in_yaml_is_rehearsed_submitted_once_and_ends(state: dict[str, Any]) -> None:
    """The gateway hands YAML over in base64; a repeated key is the same job; its attempt and its decisions are told."""
    with operator(state) as client:
        yaml = {"content-type": "application/yaml", "idempotency-key": "deployed-1"}
        rehearsed = client.post("/jobs", params={"dry_run": "1"}, content=YAML, headers=yaml)
        assert rehearsed.status_code == 200, rehearsed.text
        assert rehearsed.json()["would_start"] is True, rehearsed.text
        first = client.post("/jobs", content=YAML, headers=yaml)
        assert first.status_code == 201, first.text
        job = f"/jobs/{first.json()['job_id']}"
        again = client.post("/jobs", content=YAML, headers=yaml)
        assert (again.status_code, again.json()["job_id"]) == (200, first.json()["job_id"])
        ended = wait_for(lambda: (view := client.get(job).json())["status"] in ENDED and view, within_s=90)
        assert ended["status"] == "SUCCEEDED", ended
        (attempt,) = client.get(job).json()["attempts"]
        assert (attempt["status"], attempt["exit_code"], attempt["counted"]) == ("SUCCEEDED", 0, True)
        lines = [line["text"] for line in client.get(f"{job}/logs").json()["lines"]]
        steps = [line for line in lines if line.startswith("step ")]
        assert [line.split()[1] for line in steps] == ["1", "2", "3", "4", "5"], lines
        last = client.get(f"{job}/logs", params={"tail": "1"}).json()
        assert [line["text"] for line in last["lines"]] == lines[-1:] and last["lines"][0]["at"]
        recorded = sandbox.client("s3", state["endpoint_url"])
        bucket, _, prefix = client.get(job).json()["records"].removeprefix("s3://").partition("/")
        kept = {one["Key"] for one in recorded.list_objects_v2(Bucket=bucket, Prefix=prefix)["Contents"]}
        assert kept == {f"{prefix}spec.yaml", f"{prefix}a01/attempt.json"}
        assert recorded.get_object(Bucket=bucket, Key=f"{prefix}spec.yaml")["Body"].read().decode() == YAML
        told = client.get(f"{job}/explain").json()
        assert told["pending"] is None and told["decisions"][0]["reason"].startswith("submitted by")


def test_users_have_what_their_role_allows(state: dict[str, Any]) -> None:
    """Tokens are written, read and revoked with the rights of the function's role."""
    with operator(state) as client:
        made = client.post("/users/ana/tokens", json={"role": "user"})
        assert made.status_code == 201, made.text
        with operator(state, made.json()["token"]) as ana:
            foreign = ana.post("/jobs", json=SPEC | {"user": "bob"})
            assert (foreign.status_code, foreign.json()["code"]) == (403, "foreign_user")
            own = ana.post("/jobs", json=SPEC)
            assert own.status_code == 201, own.text
            assert ana.post("/fleet/pause", json={"because": "x"}).status_code == 403
            assert ana.post(f"/jobs/{own.json()['job_id']}/cancel").status_code == 202
        assert client.delete(f"/users/ana/tokens/{made.json()['id']}").json()["live"] is False


def test_limits_hold_as_deployed(state: dict[str, Any]) -> None:
    """Written by revision, and asked at the next submission."""
    with operator(state) as client:
        read = client.get("/quotas")
        limits = {"instances": {"carl/*/*": 0}}
        put = client.put("/quotas", json={"limits": limits}, headers={"if-match": read.headers["etag"]})
        assert put.status_code == 200, put.text
        refused = client.post("/jobs", json=SPEC | {"user": "carl"})
        assert (refused.status_code, refused.json()["field"]) == (422, "nnodes")
        queue = client.get("/queue")
        assert queue.status_code == 200 and set(queue.json()) >= {"waiting", "running", "quotas", "reservations"}


def test_a_body_of_a_megabyte_is_refused_through_the_gateway(state: dict[str, Any]) -> None:
    """413, as a problem document."""
    with operator(state) as client:
        refused = client.post("/jobs", json=SPEC | {"user": "x" * 1_048_576})
        assert (refused.status_code, refused.headers["content-type"]) == (413, "application/problem+json")


def test_no_request_makes_the_deployed_api_fail(state: dict[str, Any]) -> None:
    """Requests made of the description that it serves itself, to every operation: none is answered with 5xx."""
    with operator(state) as client:
        described = httpx.get(f"{state['api_url']}/api/v2/openapi.json", timeout=35, trust_env=False).json()
        sent: list[str] = []
        for found in schemathesis.openapi.from_dict(described).get_all_operations():
            operation: Any = found.ok()

            @settings(max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
            @given(operation.as_strategy())
            def each(case: Any) -> None:
                case.call_and_validate(
                    base_url=state["api_url"], headers=dict(client.headers),
                    checks=[schemathesis.checks.not_a_server_error],
                )  # fmt: skip
                sent.append(case.operation.label)

            each()
        assert len(set(sent)) >= len(described["paths"])
