"""A job API in memory behind httpx.MockTransport, an incident for it to tell of, who hears a training, no network."""

from __future__ import annotations

import functools
import json
import logging
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
import typer.main
import yaml
from gpu_recovery_client import RecoveryClient
from gpu_recovery_client.cli import app, job_list, logs, submit, token
from gpu_recovery_client.cli import fleet as cli_fleet
from gpu_recovery_client.cli import instances as cli_instances
from gpu_recovery_client.cli import jobs as cli_jobs
from gpu_recovery_client.cli import queue as cli_queue
from typer.testing import CliRunner, Result

from tests.client.training_process import Clock, Ear, listening

HERE = Path(__file__).parent
URL = "https://api.example.test/prod"
TOKEN = "a-token-that-nobody-may-see"
NODE_TOKEN = "grn_3f9c1b2a7d40_" + 43 * "n"
USER_TOKEN = "gru_5a5a5a5a5a5a_" + 43 * "u"
TIMED = (app, cli_fleet, cli_instances, cli_jobs, job_list, logs, cli_queue, submit, token)
"""The modules that know a clock, or wait."""
AN_HOUR_AGO = "2026-11-21T08:03:00.000Z"
NOW = datetime(2026, 11, 21, 9, 3, 0, tzinfo=UTC)


@dataclass
class FakeApi:
    """Answers as the API does, page size 2, and keeps every request.

    answer:     replaces the next answers.
    queue:      the queue, the quotas, why the first job waits, and its log.
    keys:       the job that was made under each idempotency key.
    unreadable: what each page says that it cannot show.
    me:         who the caller is.
    """

    jobs: list[dict[str, Any]]
    instances: list[dict[str, Any]]
    fleet: dict[str, Any] = field(default_factory=lambda: json.loads((HERE / "fleet.json").read_text()))
    dead_letters: dict[str, Any] = field(default_factory=lambda: json.loads((HERE / "dead_letters.json").read_text()))
    redriven: dict[str, Any] = field(default_factory=lambda: json.loads((HERE / "redriven.json").read_text()))
    queue: dict[str, Any] = field(default_factory=lambda: json.loads((HERE / "queue.json").read_text()))
    keys: dict[str, tuple[Any, str]] = field(default_factory=dict)
    requests: list[httpx.Request] = field(default_factory=list)
    answer: Callable[[httpx.Request], httpx.Response] | None = None
    page_size: int = 2
    tokens: list[dict[str, Any]] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    me: dict[str, Any] = field(default_factory=lambda: {"user": "an operator", "role": "operator"})

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        if self.answer is not None:
            return self.answer(request)
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            return problem(401, "Unauthorized", "give the operator token as a bearer token")
        path = request.url.path.removeprefix("/prod/api/v2/").split("/")
        answers = (route(request, path) for route in (self._of_jobs, self._of_machines, self._of_people))
        return next((one for one in answers if one is not None), problem(404, "Not Found", "there is no such path"))

    def _of_jobs(self, request: httpx.Request, path: list[str]) -> httpx.Response | None:
        match request.method, path:
            case "POST", ["jobs"]:
                return self._submitted(request)
            case "GET", ["jobs"]:
                return self._page("jobs", [without_history(job) for job in self.jobs], request)
            case ("GET", ["jobs", one]) | ("POST", ["jobs", one, "cancel" | "suspend" | "resume"]):
                return found(one, "job_id", self.jobs)
            case "GET", ["jobs", one, "explain"]:
                job = self.jobs[0]
                why = self.queue["pending"] if job["status"] == "PENDING_RESOURCES" else None
                return httpx.Response(200, json={"job_id": one, "pending": why, "decisions": job["history"]})
            case "GET", ["jobs", _, "logs"]:
                return httpx.Response(200, json=self.queue["logs"])
            case "GET", ["queue"]:
                return httpx.Response(200, json=self.queue["queue"])
        return None

    def _of_machines(self, request: httpx.Request, path: list[str]) -> httpx.Response | None:
        match request.method, path:
            case "GET", ["instances"]:
                return self._page("instances", [without_history(one) for one in self.instances], request)
            case ("GET", ["instances", one]) | ("POST", ["instances", one, "quarantine" | "release"]):
                return found(one, "instance_id", self.instances)
            case ("GET", ["fleet"]) | ("POST", ["fleet", "pause" | "unpause" | "reset-breaker"]):
                return httpx.Response(200, json=self.fleet)
            case "GET", ["dead-letters"]:
                return httpx.Response(200, json=self.dead_letters)
            case "POST", ["dead-letters", "redrive"]:
                return httpx.Response(200, json=self.redriven)
        return None

    def _of_people(self, request: httpx.Request, path: list[str]) -> httpx.Response | None:
        match request.method, path:
            case method, ["instances", one, "tokens", *rest]:
                return self._tokens(method, rest, {"token": NODE_TOKEN}, {"instance_id": one})
            case method, ["users", one, "tokens", *rest]:
                return self._tokens(method, rest, {"token": USER_TOKEN}, {"user": one, "role": "user"})
            case method, ["quotas"]:
                return self._quotas(method, request)
            case "GET", ["me"]:
                return httpx.Response(200, json=self.me)
        return None

    def _submitted(self, request: httpx.Request) -> httpx.Response:
        written = request.content.decode()
        kind = request.headers["content-type"]
        document = yaml.safe_load(written) if kind == "application/yaml" else json.loads(written)
        if request.url.params.get("dry_run") == "1":
            return httpx.Response(200, json=self.queue["pending"])
        key = request.headers.get("idempotency-key")
        known = self.keys.get(key or "")
        if known is not None and known[0] != document:
            return problem(422, "Another job", "that key was used for another job", code="idempotency_mismatch")
        if key:
            self.keys[key] = (document, self.jobs[0]["job_id"])
        return httpx.Response(200 if known else 201, json=self.jobs[0] | {"workload": document["workload"]})

    def _quotas(self, method: str, request: httpx.Request) -> httpx.Response:
        kept = self.queue["quotas"]
        if method == "PUT":
            if request.headers.get("if-match") != str(kept["revision"]):
                return problem(412, "Changed meanwhile", f"the revision is {kept['revision']}")
            kept = {**json.loads(request.content), "revision": kept["revision"] + 1}
        return httpx.Response(200, json=kept)

    def _tokens(self, method: str, rest: list[str], new: dict[str, Any], owner: dict[str, Any]) -> httpx.Response:
        if method == "POST":
            return httpx.Response(201, json=new | token_view(**owner))
        if method == "GET":
            named = {name: value for name, value in owner.items() if name != "role"}
            return httpx.Response(200, json={**named, "tokens": self.tokens})
        revoked = token_view(**owner, token_id=rest[0], live=False, revoked_at=AN_HOUR_AGO)
        return httpx.Response(200, json=revoked)

    def _page(self, key: str, items: list[dict[str, Any]], request: httpx.Request) -> httpx.Response:
        query = request.url.params
        if "status" in query:
            items = [item for item in items if item["status"] in query["status"].split(",")]
        if "name" in query:
            items = [item for item in items if item.get("name") == query["name"]]
            items = [item for item in items if query.get("user") in (None, item["user"])]
        begin = int(query.get("cursor", 0))
        end = begin + min(int(query.get("limit", self.page_size)), self.page_size)
        more = str(end) if end < len(items) else None
        return httpx.Response(200, json={key: items[begin:end], "next_cursor": more, "unreadable": self.unreadable})


def problem(status: int, title: str, detail: str, **more: str) -> httpx.Response:
    """An error as the API gives it."""
    body = {"type": "about:blank", "title": title, "status": status, "detail": detail, **more}
    return httpx.Response(status, json=body, headers={"content-type": "application/problem+json"})


def token_view(instance_id: str | None = None, **changes: Any) -> dict[str, Any]:
    """A token as the API shows it: of an instance, or of the user that the changes name."""
    owner = {} if instance_id is None else {"instance_id": instance_id}
    return {
        "token_id": "3f9c1b2a7d40",
        **owner,
        "live": True,
        "issued_at": "2026-11-21T09:00:00.000Z",
        "expires_at": "2026-11-23T09:03:00.000Z",
        "revoked_at": None,
        "issued_by": "an operator",
        "note": "rack 7",
        **changes,
    }


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
    for name in ("API_URL", "TOKEN", "AUTH", "PROFILE", "LANGUAGE"):
        monkeypatch.delenv(f"GPU_RECOVERY_{name}", raising=False)
    monkeypatch.setenv("GPU_RECOVERY_CONFIG", str(tmp_path / "config" / "config.toml"))
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
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that the command line waited, one number for each wait; none of them passes."""
    waited: list[float] = []
    for module in TIMED:
        if hasattr(module, "pause"):
            monkeypatch.setattr(module, "pause", waited.append)
    return waited


@pytest.fixture(scope="session", autouse=True)
def command_built_once() -> Iterator[None]:
    """Let the commands of an app be built once per run. Building them takes most of the time of an invocation."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("typer.testing._get_command", functools.cache(typer.main.get_command))
        yield


@pytest.fixture
def run(api: FakeApi, monkeypatch: pytest.MonkeyPatch, pauses: list[float]) -> Callable[..., Result]:
    """Runs the command line against the fake API at NOW; settings come from the environment."""
    monkeypatch.setenv("GPU_RECOVERY_API_URL", URL)
    monkeypatch.setenv("GPU_RECOVERY_TOKEN", TOKEN)
    for module in TIMED:
        if hasattr(module, "now"):
            monkeypatch.setattr(module, "now", lambda: NOW)

    def invoke(*arguments: str, stdin: str | None = None) -> Result:
        return CliRunner().invoke(app.app, list(arguments), input=stdin, obj=httpx.MockTransport(api))

    return invoke


@pytest.fixture
def clock() -> Clock:
    """The clock of what a training tells, which tests move."""
    return Clock()


@pytest.fixture
def ear(tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture) -> Iterator[Ear]:
    """Who hears what the training of this process tells for a diagnosis."""
    caplog.set_level(logging.INFO, "gpu_recovery.diagnosis")
    with listening(tmp_path, clock) as found:
        yield found
