"""What is said when the API refuses, is busy or does not answer, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest
from typer.testing import Result

JOB = "sft-20261121-090000-1a2b"
OPTIONS = ("--workload", "sft", "--nnodes", "2", "--gpus-per-node", "8", "--task-definition", "gpu-training")
Run = Callable[..., Result]


@pytest.mark.parametrize(
    ("status", "more", "advice"),
    [
        (401, {}, "An operator issues a new token with `gpu-recovery token issue --user NAME`."),
        (403, {}, "accepts signed requests (GPU_RECOVERY_AUTH=iam)"),
        (403, {"code": "role_too_low"}, "Use a token with a higher role"),
        (403, {"code": "needs_token"}, "to a token instead of a session"),
        (401, {"code": "not_signed"}, "set GPU_RECOVERY_AUTH=iam"),
        (403, {"code": "unknown_principal"}, "Use a role that the deployment knows"),
        (403, {"code": "foreign_user"}, "leave --user and the field user out."),
        (404, {}, "show the ids."),
        (409, {}, "show the present status."),
        (412, {}, "The limits were changed in the meantime"),
        (413, {}, "Keep large files where the ranks can read them"),
        (422, {}, "Correct the named field"),
        (422, {"code": "idempotency_mismatch"}, "Another job was submitted with this key"),
        (429, {"retry_after_s": 7}, "Nothing was changed; try again in 7 s."),
        (503, {}, "Check whether the command had an effect before you repeat it, and try again in a moment."),
    ],
)
def test_each_refusal_says_what_to_do(run: Run, api: Any, status: int, more: dict[str, Any], advice: str) -> None:
    """Below the API's own words, in one sentence; an order is not repeated by itself."""
    api.answer = lambda request: httpx.Response(status, json={"title": "No", "detail": "since", **more})
    result = run("cancel", JOB)
    first, second, *which = result.stderr.splitlines()
    assert (result.exit_code, first) == (1, f"gpu-recovery: No ({status}): since")
    assert bool(which) == (status == 401)
    assert second.startswith("  ") and advice in second
    assert len(api.requests) == 1


def test_everything_that_is_wrong_is_told_at_once(run: Run, api: Any) -> None:
    """A document with three mistakes takes one correction, not three."""
    wrong = [{"field": "nnodes", "detail": "must be 1 or more"}, {"field": "user", "detail": "is \x1b[2J odd"}]
    body = {"title": "No", "detail": "must be 1 or more", "field": "nnodes", "errors": wrong}
    api.answer = lambda request: httpx.Response(422, json=body)
    lines = run("submit", *OPTIONS).stderr.splitlines()
    assert lines[:2] == ["gpu-recovery: No (422): nnodes: must be 1 or more", "  user: is ?[2J odd"]
    assert len(lines) == 3


def test_a_sandbox_that_does_not_answer_is_asked_about(run: Run, api: Any) -> None:
    """On this machine the address is right, and the servers have ended."""

    def fail(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    api.answer = fail
    result = run("--api-url", "http://127.0.0.1:4566", "list")
    assert result.stderr.startswith(
        "gpu-recovery: cannot reach http://127.0.0.1:4566: refused\n  Is the sandbox running?"
    )


def test_a_read_waits_as_long_as_a_busy_api_asks(run: Run, api: Any, pauses: list[float]) -> None:
    """Retry-After of the header, that of the problem, or a wait that doubles; then the answer."""
    busy = [
        httpx.Response(503, headers={"retry-after": "5"}, json={"retry_after_s": 9}),
        httpx.Response(429, json={"retry_after_s": 3}),
        httpx.Response(503, headers={"retry-after": "Sat, 21 Nov 2026 09:03:00 GMT"}),
    ]

    def answer(request: httpx.Request) -> httpx.Response:
        if busy:
            return busy.pop(0)
        api.answer = None
        return httpx.Response(200, json={"jobs": [], "next_cursor": None, "unreadable": []})

    api.answer = answer
    result = run("list")
    assert (result.exit_code, result.stdout, pauses) == (0, "no jobs\n", [5.0, 3.0, 4.0])


@pytest.mark.parametrize(("after", "tries"), [("0", 4), ("31", 1)])
def test_a_busy_api_is_not_asked_for_ever(run: Run, api: Any, pauses: list[float], after: str, tries: int) -> None:
    """Four times at most, and not at all where it wants more time than anybody watches a cursor blink."""
    api.answer = lambda request: httpx.Response(503, headers={"retry-after": after}, json={"title": "Busy"})
    result = run("list")
    assert (result.exit_code, len(api.requests), pauses) == (1, tries, [0.0] * (tries - 1))
    assert result.stderr.startswith("gpu-recovery: Busy (503)\n") and f"try again in {after} s." in result.stderr


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(404, json={"message": "Not Found"}),
        httpx.Response(404, json={"title": "Not found", "code": "no_such_route", "detail": "there is no GET /x"}),
        httpx.Response(301, headers={"location": "https://other.test"}),
        httpx.Response(501, content=b"<html>"),
        httpx.Response(405, content=b"no"),
    ],
    ids=lambda answer: str(answer.status_code),
)
def test_another_server_is_told_from_an_unknown_id(run: Run, api: Any, answer: httpx.Response) -> None:
    """The address without its stage, or with /api/v2, is the usual mistake: the address is shown."""
    api.answer = lambda request: answer
    told = run("list").stderr
    assert "https://api.example.test/prod does not answer like gpu-recovery. Check GPU_RECOVERY_API_URL" in told
    assert "show the ids" not in told


def test_a_gateway_that_fails_is_no_wrong_address(run: Run, api: Any) -> None:
    """API Gateway answers without a problem document when the function fails, or the caller sends too much."""
    for status in (429, 500, 502, 503):
        api.answer = lambda request, status=status: httpx.Response(status, json={"message": "No"})
        assert "does not answer like gpu-recovery" not in run("cancel", JOB).stderr


def test_a_read_that_is_refused_changed_nothing_anyway(run: Run, api: Any) -> None:
    """The hint is about the value alone."""
    api.answer = lambda request: httpx.Response(400, json={"title": "Bad group", "detail": "must be letters"})
    assert run("list").stderr.splitlines()[1] == "  Correct the named value and try again."


def test_a_job_that_does_not_exist_has_no_hint_about_its_log(run: Run, api: Any) -> None:
    """The id is wrong, whatever was asked."""
    body = {"title": "No such job", "code": "no_such_job", "detail": "there is no job nope"}
    api.answer = lambda request: httpx.Response(404, json=body)
    assert run("logs", "nope").stderr.splitlines()[1] == "  `gpu-recovery list` shows the ids and names of jobs."
