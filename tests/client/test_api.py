"""The calls of the job API: what is asked, what is answered, what goes wrong, and that the token stays secret."""

from __future__ import annotations

import json
import logging
import traceback
from typing import Any

import httpx
import pytest
from gpu_recovery_client import (
    AnswerUnreadable,
    ClientError,
    ListIncomplete,
    RecoveryClient,
    RequestRefused,
    ServiceUnreachable,
    SettingsMissing,
)

TOKEN = "a-token-that-nobody-may-see"


def test_a_job_is_submitted_with_the_token_and_the_spec_unchanged(client: RecoveryClient, api: Any) -> None:
    """Submit posts the given document with a bearer token."""
    spec = {"workload": "sft", "nnodes": 2, "command": ["python", "train.py"]}
    assert client.submit(spec) == api.jobs[0] | {"workload": "sft"}
    (request,) = api.requests
    assert (request.method, str(request.url)) == ("POST", "https://api.example.test/prod/api/v2/jobs")
    assert json.loads(request.content) == spec
    assert request.headers["authorization"] == f"Bearer {TOKEN}"


def test_every_page_of_jobs_is_walked_with_the_same_filter(client: RecoveryClient, api: Any) -> None:
    """The iterator follows next_cursor to the end and repeats status and limit."""
    api.jobs = [api.jobs[1] | {"job_id": f"job-{n}"} for n in range(5)]
    assert [job["job_id"] for job in client.jobs("RUNNING", limit=2)] == [f"job-{n}" for n in range(5)]
    queries = [dict(request.url.params) for request in api.requests]
    assert queries == [
        {"status": "RUNNING", "limit": "2"},
        {"status": "RUNNING", "limit": "2", "cursor": "2"},
        {"status": "RUNNING", "limit": "2", "cursor": "4"},
    ]


def test_one_page_is_returned_as_the_api_gives_it(client: RecoveryClient) -> None:
    """A page keeps its cursor."""
    page = client.jobs_page()
    assert (len(page["jobs"]), page["next_cursor"]) == (2, "2")


def test_every_instance_is_listed_and_one_can_be_asked_for(client: RecoveryClient, api: Any) -> None:
    """Instances are walked page after page too."""
    api.page_size = 1
    assert [one["instance_id"] for one in client.instances()] == [one["instance_id"] for one in api.instances]
    assert client.instance("i-0bbb00000000000b2") == api.instances[1]


def test_the_line_is_walked_page_after_page(client: RecoveryClient, api: Any) -> None:
    """What is told beside it is on the first page."""
    line = [{"job_id": f"job-{n}"} for n in range(3)]

    def answer(request: httpx.Request) -> httpx.Response:
        n = int(request.url.params.get("cursor", "0"))
        first = {"running": [{"job_id": "low"}]} if n == 0 else {"running": []}
        following = str(n + 1) if n < 2 else None
        return httpx.Response(200, json={"waiting": line[n : n + 1], "next_cursor": following, **first})

    api.answer = answer
    assert client.queue() == {"waiting": line, "running": [{"job_id": "low"}], "next_cursor": None}


def test_a_list_with_records_that_the_api_cannot_read_is_no_whole_list(client: RecoveryClient, api: Any) -> None:
    """Every page's go to the caller who asks for them; another one hears of them after the last page."""
    api.page_size, api.unreadable = 1, ["instance i-2: no schema"]
    missed: list[str] = []
    found = [one["instance_id"] for one in client.instances(missed)]
    assert len(found) == len(api.instances) and missed == api.unreadable * len(found)
    for listing, number in ((client.instances(), len(api.instances)), (client.jobs(), len(api.jobs))):
        assert len([next(listing) for _ in range(number)]) == number
        with pytest.raises(ListIncomplete, match="cannot read instance i-2: no schema"):
            next(listing)


def test_cancel_posts_without_a_body(client: RecoveryClient, api: Any) -> None:
    """Cancel is a bare POST."""
    assert client.cancel("sft-20261121-090000-1a2b") == api.jobs[0]
    assert (api.requests[0].method, api.requests[0].content) == ("POST", b"")


def test_a_list_that_repeats_a_page_ends_with_an_error(client: RecoveryClient, api: Any) -> None:
    """A cursor seen before would be an endless list."""
    api.answer = lambda request: httpx.Response(200, json={"jobs": [], "next_cursor": "again"})
    with pytest.raises(AnswerUnreadable, match="repeats a page"):
        list(client.jobs())
    assert len(api.requests) == 2


@pytest.mark.parametrize("odd", ["../instances", "a/b", "a?limit=1", "a#b"])
def test_an_id_cannot_lead_to_another_path(client: RecoveryClient, api: Any, odd: str) -> None:
    """An id is one segment of the path, whatever its characters."""
    with pytest.raises(RequestRefused):
        client.job(odd)
    segments = api.requests[0].url.raw_path.split(b"/")
    assert segments[:-1] == [b"", b"prod", b"api", b"v2", b"jobs"]
    assert b"?" not in segments[-1]


@pytest.mark.parametrize("dots", ["", " ", ".", ".."])
def test_an_id_of_dots_is_refused_before_anything_is_sent(client: RecoveryClient, api: Any, dots: str) -> None:
    """Dots climb in a path even when they are quoted."""
    with pytest.raises(ClientError, match="is not a job id"):
        client.cancel(dots)
    assert api.requests == []


def test_a_problem_document_becomes_an_error_with_its_parts(client: RecoveryClient, api: Any) -> None:
    """Status, title, detail and field are attributes and in the text."""
    body = {"title": "Invalid job", "status": 400, "detail": "must be a whole number from 1 to 16", "field": "nnodes"}
    api.answer = lambda request: httpx.Response(400, json=body)
    with pytest.raises(RequestRefused) as caught:
        client.submit({})
    refusal = caught.value
    assert (refusal.status, refusal.title, refusal.field) == (400, "Invalid job", "nnodes")
    assert refusal.detail == "must be a whole number from 1 to 16"
    assert str(refusal) == "Invalid job (400): nnodes: must be a whole number from 1 to 16"


@pytest.mark.parametrize(
    ("response", "text"),
    [
        (httpx.Response(403, json={"message": "Forbidden"}), "Forbidden (403)"),
        (httpx.Response(502, text="<html>bad</html>"), "Bad Gateway (502)"),
        (httpx.Response(302, headers={"location": "https://elsewhere.test"}), "Found (302)"),
        (httpx.Response(599), "unexpected answer (599)"),
        (httpx.Response(500, json=["odd"]), "Internal Server Error (500)"),
    ],
)
def test_an_error_that_is_no_problem_document_is_refused_too(
    client: RecoveryClient, api: Any, response: httpx.Response, text: str
) -> None:
    """The gateway and proxies in between have forms of their own; a redirect is not followed with the token."""
    api.answer = lambda request: response
    with pytest.raises(RequestRefused) as caught:
        client.job("a")
    assert str(caught.value) == text
    assert len(api.requests) == 1


@pytest.mark.parametrize("content", [b"<html>", b"[]", b"{}", b"\xff", b'{"jobs": null}'])
def test_an_answer_that_is_not_the_apis_is_unreadable(client: RecoveryClient, api: Any, content: bytes) -> None:
    """A success that does not hold what was asked for is an error, for a view and for a list."""
    api.answer = lambda request: httpx.Response(200, content=content)
    with pytest.raises(AnswerUnreadable):
        client.job("a")
    with pytest.raises(AnswerUnreadable):
        client.jobs_page()


@pytest.mark.parametrize(
    ("error", "text"),
    [(httpx.ConnectError, "cannot reach"), (httpx.ReadTimeout, "in time"), (httpx.RemoteProtocolError, "cannot reach")],
)
def test_no_answer_is_unreachable(
    client: RecoveryClient, api: Any, error: type[httpx.TransportError], text: str
) -> None:
    """Connection and time-out errors name the address."""

    def fail(request: httpx.Request) -> httpx.Response:
        raise error("no luck", request=request)

    api.answer = fail
    with pytest.raises(ServiceUnreachable, match=text) as caught:
        client.job("a")
    assert "api.example.test" in str(caught.value)


def test_a_spec_without_a_json_form_is_an_error_of_ours(client: RecoveryClient, api: Any) -> None:
    """Not-a-number and bytes that were no text cannot be sent."""
    for value in (float("nan"), "\udcff"):
        with pytest.raises(ClientError, match="cannot be written as JSON"):
            client.submit({"workload": value})
    assert api.requests == []


def test_the_sandbox_address_keeps_its_path(api: Any) -> None:
    """The path form of an API in the sandbox holds a dollar sign."""
    local = RecoveryClient("http://127.0.0.1:4566/_aws/execute-api/abc/$default/", TOKEN, httpx.MockTransport(api))
    with pytest.raises(RequestRefused):
        local.job("a")
    assert api.requests[0].url.raw_path == b"/_aws/execute-api/abc/$default/api/v2/jobs/a"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "api.example.test",
        "ftp://api.example.test",
        "https://",
        "http://api.example.test",
        "http://127.0.0.1.test",
        "https://user:hunter2@api.example.test",
        "https://api.example.test?x=1",
        "https://a.test:hunter2",
        "http://localhost.evil.test",
    ],
)
def test_an_address_that_may_not_get_the_token_is_refused(url: str) -> None:
    """Only https, or http on this machine, and nothing secret in the address."""
    with pytest.raises(SettingsMissing) as caught:
        RecoveryClient(url, TOKEN)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("url", ["http://localhost:1", "http://127.8.0.1:1", "http://[::1]:1", "http://x.localhost"])
def test_plain_http_is_fine_on_this_machine(url: str) -> None:
    """Every name of the loopback interface counts."""
    assert RecoveryClient(url, TOKEN).api_url == url


@pytest.mark.parametrize(
    "token", ["", "  ", "secret\nhunter2", "secret hunter2", "секрет-hunter2", "secret\x00hunter2"]
)
def test_a_token_no_header_can_carry_is_refused_without_being_shown(token: str) -> None:
    """The library's own message would quote the header."""
    with pytest.raises(SettingsMissing) as caught:
        RecoveryClient("https://api.example.test", token)
    assert "hunter2" not in str(caught.value)


def test_the_token_is_in_no_repr_log_or_error(
    client: RecoveryClient, api: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Not even when the server or the library repeats it."""

    def fail(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError(f"odd header {TOKEN}", request=request)

    body = {"title": f"bad {TOKEN}", "detail": f"Bearer {TOKEN} is wrong", "field": TOKEN}
    texts = [repr(client), str(client), repr(client._http), str(client._http.headers)]
    with caplog.at_level(logging.DEBUG):
        for answer in (fail, lambda request: httpx.Response(401, json=body)):
            api.answer = answer
            with pytest.raises(ClientError) as caught:
                client.job("a")
            texts += [str(caught.value), repr(caught.value), repr(vars(caught.value))]
            texts += ["".join(traceback.format_exception_only(caught.value))]
    assert "HTTP Request" in caplog.text
    assert [text for text in (*texts, caplog.text) if TOKEN in text] == []


def test_a_proxy_of_the_environment_is_used_for_remote_addresses_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy cannot reach this machine's loopback interface."""
    monkeypatch.setenv("ALL_PROXY", "http://proxy.example.test:3128")
    assert RecoveryClient("https://api.example.test", TOKEN)._http._mounts != {}
    assert RecoveryClient("http://127.0.0.1:1", TOKEN)._http._mounts == {}
