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
        (401, {}, "an operator makes a new one with `gpu-recovery token issue --user NAME`."),
        (403, {}, "takes signed requests (GPU_RECOVERY_AUTH=iam)"),
        (403, {"code": "role_too_low"}, "Your role does not allow this"),
        (403, {"code": "needs_token"}, "to a token instead of a session"),
        (401, {"code": "not_signed"}, "set GPU_RECOVERY_AUTH=iam"),
        (403, {"code": "unknown_principal"}, "Use a role that the deployment knows"),
        (403, {"code": "foreign_user"}, "leave --user and the field user out."),
        (404, {}, "Look the id up"),
        (409, {}, "It is in a state that does not allow this"),
        (412, {}, "Somebody changed it meanwhile"),
        (413, {}, "Keep large files where the ranks can read them"),
        (422, {}, "Correct the field that is named"),
        (422, {"code": "idempotency_mismatch"}, "Another job was submitted under that key"),
        (429, {"retry_after_s": 7}, "nothing was changed, try again in 7 s."),
        (503, {}, "look whether an order was followed before you repeat it, and try again in a moment."),
    ],
)
def test_each_refusal_says_what_to_do(run: Run, api: Any, status: int, more: dict[str, Any], advice: str) -> None:
    """Below the API's own words, in one sentence; an order is not repeated by itself."""
    api.answer = lambda request: httpx.Response(status, json={"title": "No", "detail": "since", **more})
    result = run("cancel", JOB)
    first, second = result.stderr.splitlines()
    assert (result.exit_code, first) == (1, f"gpu-recovery: No ({status}): since")
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
    assert result.stderr.startswith("gpu-recovery: cannot reach http://127.0.0.1:4566: refused\n  Is the sandbox up?")


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
