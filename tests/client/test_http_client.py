"""How requests are made: which are made again, under what key, and what importing the package costs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpu_recovery_client
import httpx
import pytest
from gpu_recovery_client import AnswerUnreadable, RecoveryClient, RequestRefused, ServiceUnreachable

URL, TOKEN = "https://api.example.test/prod", "a-token-that-nobody-may-see"
JOB = {"job_id": "sft-1", "status": "QUEUED"}
SPEC = {"workload": "sft"}
LOST = [httpx.ReadTimeout, httpx.RemoteProtocolError, httpx.ReadError]
Answer = httpx.Response | type[httpx.TransportError]


class Line:
    """A network that answers as it is told to, in turn. `waits` are the pauses between tries, in seconds."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.requests: list[httpx.Request] = []
        self.waits: list[float] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, httpx.Response):
            return answer
        raise answer("no luck", request=request)

    def client(self) -> RecoveryClient:
        """A client whose requests go over it."""
        return RecoveryClient(URL, TOKEN, httpx.MockTransport(self), pause=self.waits.append)


def busy(status: int = 503) -> httpx.Response:
    """A refusal that names no time."""
    return httpx.Response(status, json={"title": "Busy"})


@pytest.mark.parametrize("lost", LOST)
def test_a_submission_whose_answer_got_lost_is_sent_again_under_its_key(lost: type[httpx.TransportError]) -> None:
    """The API then knows it, if it had heard the first."""
    line = Line(lost, busy(), httpx.Response(200, json=JOB))
    assert line.client().submit(SPEC, key="k1") == JOB
    assert [one.headers["idempotency-key"] for one in line.requests] == ["k1"] * 3
    assert [json.loads(one.content) for one in line.requests] == [SPEC] * 3
    assert line.waits == [1.0, 2.0]


@pytest.mark.parametrize("lost", LOST)
def test_a_submission_without_a_key_is_sent_once(lost: type[httpx.TransportError]) -> None:
    """Sent again it would be a second job."""
    line = Line(lost)
    with pytest.raises(ServiceUnreachable):
        line.client().submit(SPEC)
    assert (len(line.requests), line.waits) == (1, [])
    assert "idempotency-key" not in line.requests[0].headers


def test_a_submission_is_given_up_on_after_four_tries() -> None:
    """What is lost four times is not a hiccup."""
    line = Line(*[httpx.ReadTimeout] * 5)
    with pytest.raises(ServiceUnreachable, match="did not answer in time"):
        line.client().submit(SPEC, key="k1")
    assert (len(line.requests), line.waits) == (4, [1.0, 2.0, 4.0])


def test_nothing_is_sent_again_where_nobody_listens() -> None:
    """A refused connection is told at once."""
    line = Line(httpx.ConnectError)
    with pytest.raises(ServiceUnreachable, match=r"cannot reach https://api\.example\.test/prod"):
        line.client().submit(SPEC, key="k1")
    assert len(line.requests) == 1


@pytest.mark.parametrize(
    "order",
    [
        lambda client: client.cancel("a"),
        lambda client: client.suspend("a"),
        lambda client: client.resume("a"),
        lambda client: client.release("i-1"),
        lambda client: client.quarantine("i-1"),
        lambda client: client.put_quotas({}, 1),
        lambda client: client.issue_user_token("ana", "user"),
        lambda client: client.revoke_user_token("ana", "t"),
        lambda client: client.submit(SPEC),
    ],
)
@pytest.mark.parametrize("status", [429, 503])
def test_an_order_that_was_refused_is_not_repeated(order: Callable[[RecoveryClient], Any], status: int) -> None:
    """Whether to repeat what changes something is the caller's to say."""
    line = Line(busy(status))
    with pytest.raises(RequestRefused) as caught:
        order(line.client())
    assert (caught.value.status, len(line.requests)) == (status, 1)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 422, 500, 502, 504])
def test_a_read_is_not_repeated_for_another_refusal(status: int) -> None:
    """Only busy passes by itself."""
    line = Line(httpx.Response(status, headers={"retry-after": "1"}))
    with pytest.raises(RequestRefused):
        line.client().job("a")
    assert len(line.requests) == 1


@pytest.mark.parametrize(
    ("told", "waited"), [("7", 7.0), ("-1", 1.0), ("nan", 1.0), ("inf", 1.0), ("soon", 1.0), ("0.5", 0.5)]
)
def test_a_retry_after_that_is_no_time_is_not_believed(told: str, waited: float) -> None:
    """A server's slip must not make a client wait for ever, or not at all."""
    line = Line(httpx.Response(503, headers={"retry-after": told}), httpx.Response(200, json=JOB))
    line.client().job("a")
    assert line.waits == [waited]


def test_a_document_goes_as_it_was_written() -> None:
    """Comments and all, under the name of its form; the API keeps it so."""
    text = "# ours\nworkload: sft  # 微调\n"
    line = Line(httpx.Response(201, json=JOB), httpx.Response(200, json={"would_start": True}))
    client = line.client()
    client.submit(text, kind="application/yaml", key="k1")
    assert client.dry_run(text, kind="application/yaml") == {"would_start": True}
    assert [one.content.decode() for one in line.requests] == [text, text]
    assert [one.headers["content-type"] for one in line.requests] == ["application/yaml"] * 2
    assert [str(one.url.query, "ascii") for one in line.requests] == ["", "dry_run=1"]


def test_quotas_are_put_in_place_of_the_revision_that_was_read() -> None:
    """So that two who set limits at once cannot undo each other's unseen."""
    line = Line(httpx.Response(200, json={"limits": {}, "revision": 8}))
    line.client().put_quotas({"max_running_jobs": 3}, 7)
    (request,) = line.requests
    assert (request.method, request.url.path) == ("PUT", "/prod/api/v2/quotas")
    assert (request.headers["if-match"], json.loads(request.content)) == ("7", {"limits": {"max_running_jobs": 3}})


@pytest.mark.parametrize(
    "ask",
    [
        lambda client: client.dry_run(SPEC),
        lambda client: client.logs("a"),
        lambda client: client.explain("a"),
        lambda client: client.queue(),
        lambda client: client.quotas(),
        lambda client: client.user_tokens("ana"),
    ],
)
def test_an_answer_without_what_was_asked_for_is_unreadable(ask: Callable[[RecoveryClient], Any]) -> None:
    """Whatever answers there is not the API."""
    with pytest.raises(AnswerUnreadable, match="is https://api"):
        ask(Line(httpx.Response(200, json={"hello": "world"})).client())


def test_a_refusal_keeps_what_the_api_says_of_it() -> None:
    """Programs go by the code and the time, people by the sentences; none of it holds the token."""
    errors = [{"field": "nnodes", "detail": "too many"}, {"field": TOKEN, "detail": f"not {TOKEN}"}, "odd"]
    body = {"title": "No", "detail": "too many", "field": "nnodes", "errors": errors, "code": "bad", "retry_after_s": 2}
    with pytest.raises(RequestRefused) as caught:
        Line(httpx.Response(422, json=body)).client().submit(SPEC)
    refusal = caught.value
    assert (refusal.code, refusal.retry_after_s, refusal.path) == ("bad", 2.0, "/jobs")
    assert refusal.more == (("[token]", "not [token]"),)


def test_importing_the_package_costs_nothing_beyond_the_standard_library() -> None:
    """Training code imports it in containers that have neither httpx nor typer."""
    heavy = {"httpx", "typer", "rich", "yaml", "gpu_recovery", "asyncio", "ssl"}
    code = f"import sys, gpu_recovery_client; print(*sorted({heavy!r} & set(sys.modules)))"
    path = str(Path(gpu_recovery_client.__file__ or "").parents[1])
    script = f"import sys; sys.path.insert(0, {path!r}); {code}"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout == "\n"


def test_the_package_offers_the_client_and_nothing_that_it_has_not() -> None:
    """What is looked up late is still looked up."""
    assert gpu_recovery_client.RecoveryClient is RecoveryClient
    assert {name for name in gpu_recovery_client.__all__ if not hasattr(gpu_recovery_client, name)} == set()
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        gpu_recovery_client.Nothing  # noqa: B018
