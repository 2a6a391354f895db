"""A job API in memory behind httpx.MockTransport, an incident for it to tell of, and no network."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from gpu_recovery_client import RecoveryClient, cli, cli_fleet, cli_token
from typer.testing import CliRunner, Result

HERE = Path(__file__).parent
URL = "https://api.example.test/prod"
TOKEN = "a-token-that-nobody-may-see"
NODE_TOKEN = "grn_3f9c1b2a7d40_" + 43 * "n"
AN_HOUR_AGO = "2026-11-21T08:03:00.000Z"
NOW = datetime(2026, 11, 21, 9, 3, 0, tzinfo=UTC)


@dataclass
class FakeApi:
    """Answers as the API does, page size 2, and keeps every request.

    answer:     replaces the next answers.
    unreadable: what each page says that it cannot show.
    """

    jobs: list[dict[str, Any]]
    instances: list[dict[str, Any]]
    fleet: dict[str, Any] = field(default_factory=lambda: json.loads((HERE / "fleet.json").read_text()))
    dead_letters: dict[str, Any] = field(default_factory=lambda: json.loads((HERE / "dead_letters.json").read_text()))
    redriven: dict[str, Any] = field(default_factory=lambda: json.loads((HERE / "redriven.json").read_text()))
    requests: list[httpx.Request] = field(default_factory=list)
    answer: Callable[[httpx.Request], httpx.Response] | None = None
    page_size: int = 2
    tokens: list[dict[str, Any]] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        if self.answer is not None:
            return self.answer(request)
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            return problem(401, "Unauthorized", "give the operator token as a bearer token")
        path = request.url.path.removeprefix("/prod/api/v2/").split("/")
        match request.method, path:
            case "POST", ["jobs"]:
                answer = httpx.Response(201, json=self.jobs[0] | {"workload": json.loads(request.content)["workload"]})
            case "GET", ["jobs"]:
                answer = self._page("jobs", [without_history(job) for job in self.jobs], request)
            case "GET", ["instances"]:
                answer = self._page("instances", [without_history(one) for one in self.instances], request)
            case ("GET", ["jobs", one]) | ("POST", ["jobs", one, "cancel"]):
                answer = found(one, "job_id", self.jobs)
            case ("GET", ["instances", one]) | ("POST", ["instances", one, "quarantine" | "release"]):
                answer = found(one, "instance_id", self.instances)
            case ("GET", ["fleet"]) | ("POST", ["fleet", "pause" | "unpause" | "reset-breaker"]):
                answer = httpx.Response(200, json=self.fleet)
            case method, ["instances", one, "tokens", *rest]:
                answer = self._tokens(method, one, rest)
            case "GET", ["dead-letters"]:
                answer = httpx.Response(200, json=self.dead_letters)
            case "POST", ["dead-letters", "redrive"]:
                answer = httpx.Response(200, json=self.redriven)
            case _:
                answer = problem(404, "Not Found", "there is no such path")
        return answer

    def _tokens(self, method: str, instance_id: str, rest: list[str]) -> httpx.Response:
        if method == "POST":
            return httpx.Response(201, json={"token": NODE_TOKEN} | token_view(instance_id))
        if method == "GET":
            return httpx.Response(200, json={"instance_id": instance_id, "tokens": self.tokens})
        revoked = token_view(instance_id, token_id=rest[0], live=False, revoked_at=AN_HOUR_AGO)
        return httpx.Response(200, json=revoked)

    def _page(self, key: str, items: list[dict[str, Any]], request: httpx.Request) -> httpx.Response:
        query = request.url.params
        if "status" in query:
            items = [item for item in items if item["status"] == query["status"]]
        begin = int(query.get("cursor", 0))
        end = begin + min(int(query.get("limit", self.page_size)), self.page_size)
        more = str(end) if end < len(items) else None
        return httpx.Response(200, json={key: items[begin:end], "next_cursor": more, "unreadable": self.unreadable})


def problem(status: int, title: str, detail: str, **more: str) -> httpx.Response:
    """An error as the API gives it."""
    body = {"type": "about:blank", "title": title, "status": status, "detail": detail, **more}
    return httpx.Response(status, json=body, headers={"content-type": "application/problem+json"})


def token_view(instance_id: str, **changes: Any) -> dict[str, Any]:
    """A node's token as the API shows it."""
    return {
        "token_id": "3f9c1b2a7d40", "instance_id": instance_id, "live": True, "issued_at": "2026-11-21T09:00:00.000Z",
        "expires_at": "2026-11-23T09:03:00.000Z", "revoked_at": None, "issued_by": "an operator", "note": "rack 7",
        **changes,
    }  # fmt: skip


def found(one: str, key: str, items: list[dict[str, Any]]) -> httpx.Response:
    """The item whose `key` is `one`, or a 404."""
    for item in items:
        if item[key] == one:
            return httpx.Response(200, json=item)
    return problem(404, "Not Found", f"there is no {one}")


def without_history(view: dict[str, Any]) -> dict[str, Any]:
    """A view as lists have it."""
    return {key: value for key, value in view.items() if key != "history"}


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Any connection is an error, and neither the environment nor a sandbox says where the API is."""

    def refuse(*_: object) -> None:
        raise AssertionError("a client test tried to use the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    for name in ("GPU_RECOVERY_API_URL", "GPU_RECOVERY_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def incident() -> dict[str, Any]:
    """A job whose first attempt met a broken GPU: {"job": view, "instances": [views]}."""
    story: dict[str, Any] = json.loads((HERE / "incident.json").read_text())
    return story


@pytest.fixture
def api(incident: dict[str, Any]) -> FakeApi:
    """The incident's job and two others, and the incident's instances."""
    others = [incident["job"] | {"job_id": f"rl-20261121-08000{n}-000{n}", "status": "RUNNING"} for n in (1, 2)]
    return FakeApi([incident["job"], *others], incident["instances"])


@pytest.fixture
def client(api: FakeApi) -> RecoveryClient:
    """A client of the fake API."""
    return RecoveryClient(URL, TOKEN, httpx.MockTransport(api))


@pytest.fixture
def run(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Runs the command line against the fake API at NOW; settings come from the environment."""
    monkeypatch.setenv("GPU_RECOVERY_API_URL", URL)
    monkeypatch.setenv("GPU_RECOVERY_TOKEN", TOKEN)
    monkeypatch.setattr(cli, "now", lambda: NOW)
    monkeypatch.setattr(cli_fleet, "now", lambda: NOW)
    monkeypatch.setattr(cli_token, "now", lambda: NOW)

    def invoke(*arguments: str, stdin: str | None = None) -> Result:
        return CliRunner().invoke(cli.app, list(arguments), input=stdin, obj=httpx.MockTransport(api))

    return invoke
