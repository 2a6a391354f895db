"""The node API as it is deployed, through its gateway: GPUTasker's own requests, reports, tokens."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from gpu_recovery.core.heartbeat import running_log_id
from gpu_recovery.node_api.router import BODY_BYTES_MAX
from gpu_recovery_client.api import RecoveryClient

from sandbox import sandbox
from tests.sandbox.node_agents import post
from tests.sandbox.patience import wait_until

pytestmark = pytest.mark.slow
BOOT = "0b7f3c1e-6a55-4e0c-9f3b-2a9c7d1e4f60"
BEAT = {"boot_id": BOOT, "uptime_s": 120.5, "sequence": 1, "running": []}
GPU = {
    "uuid": "GPU-5d0f1b7e-0000-4000-8000-000000000001",
    "index": "0",
    "name": "NVIDIA H200",
    "utilization": "3",
    "memory_total": "143771",
    "memory_used": "1024",
    "processes": [{"pid": "4242", "command": "python", "gpu_memory_usage": "900", "username": "ana"}],
}
TASK = {"running_log_id": "17", "remote_pid": "4242", "remote_pgid": "4242"}


@pytest.mark.parametrize("path", ["/api/v1/report_gpu/", "/api/v1/report_gpu"])
def test_gputaskers_report_of_gpus_is_accepted(state: dict[str, Any], path: str) -> None:
    """The request as its agent documents it, every number a text."""
    body = {"token": state["node_token"], "gpus": [GPU], "timestamp": str(time.time())}
    status, answer, _ = post(state, path, body)
    assert (status, set(answer), answer["ok"]) == (200, {"ok", "ts"}, True)
    assert type(answer["ts"]) is int


@pytest.mark.parametrize("path", ["/api/v1/report_tasks/", "/api/v1/report_tasks"])
def test_gputaskers_report_of_tasks_is_accepted(state: dict[str, Any], path: str) -> None:
    """A task that nobody here has started is none of ours: it is heard, and counts for nothing."""
    body = {"token": state["node_token"], "tasks": [TASK], "timestamp": "1763715600"}
    status, answer, _ = post(state, path, body)
    assert (status, set(answer)) == (200, {"ok", "updated", "revived", "ts"})
    assert (answer["ok"], answer["updated"], answer["revived"]) == (True, 0, 0)


def test_gputaskers_agent_is_told_of_ranks_that_are_ours(state: dict[str, Any]) -> None:
    """By the number that the rank was given; that of its next attempt, which is not there, counts for nothing."""
    spec = {
        "workload": "heard",
        "nnodes": 1,
        "n_gpus_per_node": 8,
        "task_definition": sandbox.TRAINING_FAMILY,
        "command": ["python", "-c", "import time; time.sleep(600)"],
    }
    with RecoveryClient(state["api_url"], state["operator_token"]) as client:
        job_id = client.submit(spec)["job_id"]
        wait_until(lambda: client.job(job_id)["status"] == "RUNNING", lambda: client.job(job_id)["reason"])
        logs = [running_log_id(job_id, attempt, 0) for attempt in (1, 2)]
        tasks = [{"running_log_id": str(log), "remote_pid": "4242", "remote_pgid": "4242"} for log in logs]
        answers = [
            post(state, "/api/v1/report_tasks/", {"token": state["node_token"], "tasks": [task], "timestamp": "1"})
            for task in tasks
        ]
        client.cancel(job_id)
    assert [(status, body["updated"], body["revived"]) for status, body, _ in answers] == [(200, 1, 0), (200, 0, 0)]


@pytest.mark.parametrize(
    ("path", "body", "status", "error"),
    [
        ("/api/v1/report_tasks/", {"tasks": []}, 401, "missing_token"),
        ("/api/v1/report_gpu/", {"token": "guessed", "gpus": []}, 403, "invalid_token"),
        ("/api/v1/report_gpu/", b"{", 400, "invalid_json"),
        ("/api/v1/report_gpu/", {}, 400, "missing_gpus"),
        ("/api/v1/report_gpu/", {"gpus": "none"}, 400, "invalid_gpus"),
        ("/api/v1/report_tasks/", {}, 400, "missing_tasks"),
        ("/api/v1/report_tasks/", {"tasks": {}}, 400, "invalid_tasks"),
    ],
)
def test_gputaskers_agent_is_refused_in_the_words_it_knows(
    state: dict[str, Any], path: str, body: Any, status: int, error: str
) -> None:
    """It ends on 401 and 403 and goes on after the others."""
    if isinstance(body, dict) and status == 400:
        body = {"token": state["node_token"]} | body
    assert post(state, path, body)[:2] == (status, {"ok": False, "error": error})


def test_a_report_is_answered_with_what_to_do(state: dict[str, Any]) -> None:
    """With a token in its header, whatever it calls its content."""
    for kind in ("application/json", "application/octet-stream"):
        status, answer, _ = post(state, "/api/v1/reports", BEAT, state["node_token"], kind=kind)
        assert status == 200
        assert set(answer) == {"ok", "ts", "next_s", "inventory", "orders", "refused"}
        assert (answer["ok"], answer["next_s"]) == (True, 15)


def test_a_report_without_a_token_or_of_another_method_is_refused(state: dict[str, Any]) -> None:
    """By the function behind the route of nodes, not by that of people."""
    status, answer, headers = post(state, "/api/v1/reports", BEAT)
    assert (status, answer["error"], headers["Content-Type"]) == (401, "missing_token", "application/problem+json")
    status, answer, _ = post(state, "/api/v1/reports", BEAT, state["operator_token"])
    assert (status, answer["error"]) == (403, "invalid_token")
    status, answer, _ = post(state, "/api/v1/reports", BEAT, state["node_token"], method="PUT")
    assert (status, answer["error"]) == (405, "method_not_allowed")


@pytest.mark.parametrize("path", ["/api/v1/reports", "/api/v1/report_gpu/"])
def test_a_body_of_more_than_a_mebibyte_is_too_large(state: dict[str, Any], path: str) -> None:
    """413, whether the function says so or the gateway before it; one byte less is read, and heard."""
    body = BEAT | {"sequence": 2} if path.endswith("reports") else {"token": state["node_token"], "gpus": [GPU]}
    text = json.dumps(body).encode()
    for size, expected in ((BODY_BYTES_MAX + 1, 413), (BODY_BYTES_MAX, 200)):
        status, answer, _ = post(state, path, text + b" " * (size - len(text)), state["node_token"])
        assert status == expected, answer
        assert status == 200 or answer.get("error", "too_large") == "too_large"


def test_an_unsigned_call_does_not_pass_for_a_signed_one(state: dict[str, Any]) -> None:
    """Whoever answers it, gateway or function: 403."""
    assert post(state, "/api/v1/signed/reports", BEAT, state["node_token"])[0] == 403


def test_every_instance_has_its_token_and_a_next_one_can_be_issued_and_revoked(state: dict[str, Any]) -> None:
    """The deployed role lets the job API write tokens and the node API read them."""
    with RecoveryClient(state["api_url"], state["operator_token"]) as client:
        ((name, first),) = state["node_tokens"].items()
        assert first == state["node_token"]
        (listed,) = client.tokens(name)["tokens"]
        assert listed["live"] and listed["token_id"] in first
        second = client.issue_token(name)
        client.revoke_token(name, second["token_id"])
        status, answer, _ = post(state, "/api/v1/reports", BEAT, second["token"])
        assert (status, answer["error"]) == (403, "invalid_token")
        assert [one["live"] for one in client.tokens(name)["tokens"]] == [True, False]
