"""The job side of the API as it is deployed, through its gateway, with the rights of its role."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from sandbox import sandbox
from tests.sandbox.api_clients import operator
from tests.sandbox.patience import wait_until
from tests.sandbox.tables import tables, tables_at_rest

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::Warning")]
AS_YAML, AS_JSON = {"content-type": "application/yaml"}, {"content-type": "application/json"}
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
        ended = wait_until(lambda: (view := client.get(job).json())["status"] in ENDED and view)
        assert ended["status"] == "SUCCEEDED", ended
        (attempt,) = client.get(job).json()["attempts"]
        assert (attempt["status"], attempt["exit_code"], attempt["counted"]) == ("SUCCEEDED", 0, True)
        lines = [line["text"] for line in client.get(f"{job}/logs").json()["lines"]]
        steps = [line for line in lines if line.startswith("step ")]
        assert [line.split()[1] for line in steps] == ["1", "2", "3", "4", "5"], lines
        last = client.get(f"{job}/logs", params={"tail": "1"}).json()
        assert [line["text"] for line in last["lines"]] == lines[-1:] and last["lines"][0]["at"]
        recorded = sandbox.client("s3", state["endpoint_url"], state)
        bucket, _, prefix = client.get(job).json()["records"].removeprefix("s3://").partition("/")
        # The record of an attempt is written after the status that ends it.
        wait_until(
            lambda: (
                {one["Key"] for one in recorded.list_objects_v2(Bucket=bucket, Prefix=prefix)["Contents"]}
                == {f"{prefix}spec.yaml", f"{prefix}a01/attempt.json"}
            )
        )
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


BAD: dict[str, tuple[int, str, dict[str, Any]]] = {
    "YAML that is none": (400, "operator", {"content": "a: [1,\nb: }", "headers": AS_YAML}),
    "an alias in YAML": (400, "operator", {"content": f"x: &a 1\n{YAML}y: *a\n", "headers": AS_YAML}),
    "JSON that is none": (400, "operator", {"content": '{"workload": ', "headers": AS_JSON}),
    "no text": (400, "operator", {"content": b"\xff\xfe\x00", "headers": AS_JSON}),
    "a megabyte of JSON": (413, "operator", {"json": SPEC | {"user": "x" * 1_048_576}}),
    "a megabyte of YAML": (413, "operator", {"content": YAML + "#" * 1_048_576, "headers": AS_YAML}),
    "an unknown field": (422, "operator", {"json": SPEC | {"colour": "blue"}}),
    "a negative number of nodes": (422, "operator", {"json": SPEC | {"nnodes": -1}}),
    "a negative number of GPUs": (422, "operator", {"json": SPEC | {"n_gpus_per_node": -8}}),
    "a negative run time": (422, "operator", {"json": SPEC | {"max_runtime_s": -60}}),
    "an image that is not its container's": (422, "operator", {"json": SPEC | {"image": "me/train:2"}}),
    "another user's name": (403, "user", {"json": SPEC | {"user": "bob"}}),
    "a viewer": (403, "viewer", {"json": SPEC}),
    "a node's token": (401, "node", {"json": SPEC}),
    "a foreign token": (401, "foreign", {"json": SPEC}),
    "half a token": (401, "half", {"json": SPEC}),
    "no token": (401, "none", {"json": SPEC}),
}
"""What is no submission: the answer to it, whose token it comes with, and what is sent."""


@pytest.fixture(scope="module")
def at_rest() -> dict[str, bytes]:
    """The tables when they were last seen at rest: a test that changes nothing leaves them so for the next."""
    return {}


@pytest.mark.parametrize("what", BAD)
def test_what_is_no_submission_is_refused_and_leaves_no_trace(
    state: dict[str, Any], tokens: dict[str, str], at_rest: dict[str, bytes], what: str
) -> None:
    """Through the gateway: a clear 4xx, as a problem document, and both tables are byte for byte what they were."""
    status, whose, sent = BAD[what]
    if not at_rest or tables(state) != at_rest:
        at_rest.clear()
        at_rest.update(tables_at_rest(state))
    before = dict(at_rest)
    headers = {"authorization": f"Bearer {tokens[whose]}"} if tokens[whose] else {}
    request = {**sent, "headers": {**headers, **sent.get("headers", {})}}
    url = f"{state['api_url']}/api/v2/jobs"
    refused = httpx.post(url, timeout=35, trust_env=False, **request)
    assert (refused.status_code, refused.headers["content-type"]) == (status, "application/problem+json"), refused.text
    told = refused.json()
    assert told["status"] == status and told["title"] and told["detail"] and told["code"]
    assert before and tables(state) == before
