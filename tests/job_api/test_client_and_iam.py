"""The command line with `GPU_RECOVERY_AUTH=iam`, an API Gateway that verifies signatures, and the API behind it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
from gpu_recovery_client.cli import app
from gpu_recovery_client.diagnosis import GpuLock
from typer.testing import CliRunner, Result

from sandbox.credentials import secret_access_key
from sandbox.request_guard import RequestGuard
from tests.job_api.test_client_and_api import YAML, api, carried, told
from tests.lambdas.api_gateway import Api

__all__ = ["api"]
pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")
PORT, SECRET, REGION = 4566, "the-random-secret-of-the-account", "cn-northwest-1"
SESSION_TOKEN = "session-token-that-nobody-may-see"
ROLE = "arn:aws-cn:iam::444455556666:role/"
SIGNERS = {
    "AKIDOPERATOR": "arn:aws-cn:sts::444455556666:assumed-role/gpu-operators/olga",
    "AKIDANA": "arn:aws-cn:sts::444455556666:assumed-role/researchers/ana",
    "AKIDSTRANGER": "arn:aws-cn:sts::999900009999:assumed-role/researchers/ana",
}
"""The principal of each access key. API Gateway lets all of them call the API."""
Run = Callable[..., Result]


@dataclass
class Gateway:
    """API Gateway with IAM authorization: it verifies the signature and names the signer.

    change: what happens to a request on its way.
    """

    api: Api
    change: Callable[[httpx.Request], httpx.Request] = lambda request: request
    requests: list[httpx.Request] = field(default_factory=list)
    port: int = PORT

    def __call__(self, sent: httpx.Request) -> httpx.Response:
        self.requests.append(sent)
        request = self.change(sent)
        headers = {name.lower(): value for name, value in request.headers.items()}
        target = request.url.raw_path.decode()
        authorization = headers.get("authorization", "")
        scope = f"/{REGION}/execute-api/aws4_request,"
        if scope not in authorization or RequestGuard(SECRET, self.port).refusal(
            request.method, target, headers, request.content
        ):
            # AWS repeats the canonical request, with the headers that it read.
            return httpx.Response(403, json={"message": f"Forbidden: x-amz-security-token:{SESSION_TOKEN}"})
        signer = SIGNERS[authorization.partition("Credential=")[2].partition("/")[0]]
        return carried(self.api, request, authorizer={"iam": {"userArn": signer}})


@pytest.fixture
def gateway(api: Api, monkeypatch: pytest.MonkeyPatch) -> Gateway:
    """API Gateway before the API of a deployment whose callers sign."""
    roles = {f"{ROLE}gpu-operators": "operator", f"{ROLE}researchers": "user"}
    monkeypatch.setenv("API_AUTH", "iam")
    monkeypatch.setenv("API_ROLES", json.dumps(roles))
    api.functions.chill()
    return Gateway(api)


@pytest.fixture
def run(gateway: Gateway, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Runs the command line with the credentials of an access key."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPU_RECOVERY_API_URL", f"http://127.0.0.1:{PORT}")
    monkeypatch.setenv("GPU_RECOVERY_AUTH", "iam")
    monkeypatch.setenv("GPU_RECOVERY_TOKEN", "a-token-of-another-deployment")

    def invoke(*arguments: str, key: str = "AKIDANA", secret: str = SECRET, stdin: str | None = None) -> Result:
        environment = {
            "AWS_ACCESS_KEY_ID": key,
            "AWS_SECRET_ACCESS_KEY": secret_access_key(secret, key),
            "AWS_SESSION_TOKEN": SESSION_TOKEN,
            "AWS_REGION": REGION,
        }
        runner = CliRunner(env=environment)
        return runner.invoke(app.app, list(arguments), input=stdin, obj=httpx.MockTransport(gateway))

    return invoke


def test_signed_requests_do_what_requests_with_a_token_do(run: Run, gateway: Gateway) -> None:
    """A body, a key, a query with a blank and other signs, an id in the path; no token travels."""
    job = told(run("submit", "-", "--idempotency-key", "k1", "--json", stdin=YAML))
    assert job["user"] == "ana"
    assert told(run("list", "--user", "ana & +co/@x ~", "--json"))["jobs"] == []
    assert [one["job_id"] for one in told(run("list", "--user", "ana", "--json"))["jobs"]] == [job["job_id"]]
    assert told(run("cancel", job["job_id"], "--json"))["status"] == "CANCELED"
    told(run("quota", "set", "ana/NORMAL/a100=4", "--json", key="AKIDOPERATOR"))
    assert b"user=ana%20%26%20%2Bco%2F%40x%20~" in b"".join(one.url.query for one in gateway.requests)
    assert not any("a-token-of-another-deployment" in str(one.headers.raw) for one in gateway.requests)


@pytest.mark.parametrize(
    "change",
    [
        lambda sent: httpx.Request(sent.method, sent.url, headers=sent.headers, content=sent.content + b" "),
        lambda sent: httpx.Request(sent.method, f"{sent.url}?dry_run=1", headers=sent.headers, content=sent.content),
        lambda sent: httpx.Request("PUT", sent.url, headers=sent.headers, content=sent.content),
        lambda sent: _with_header(sent, "idempotency-key", "k2"),
        lambda sent: _with_header(sent, "content-type", "application/json"),
        lambda sent: _with_header(sent, "x-amz-security-token", "another-session"),
    ],
)
def test_a_signature_is_good_for_its_own_request_only(
    run: Run, gateway: Gateway, change: Callable[[httpx.Request], httpx.Request]
) -> None:
    """Body, query, method, key, media type and session are covered; the refusal says what to look at."""
    gateway.change = change
    result = run("submit", "-", "--idempotency-key", "k1", stdin=YAML)
    assert result.exit_code == 1 and "Forbidden" in result.stderr
    assert "API Gateway refused the request" in result.stderr and "execute-api:Invoke" in result.stderr


def _with_header(sent: httpx.Request, name: str, value: str) -> httpx.Request:
    headers = httpx.Headers(sent.headers)
    headers[name] = value
    return httpx.Request(sent.method, sent.url, headers=headers, content=sent.content)


def test_another_secret_signs_nothing(run: Run) -> None:
    """The double of API Gateway computes the signature anew."""
    assert run("list", secret="another").exit_code == 1
    assert run("list").exit_code == 0


def test_a_principal_without_a_role_is_told_what_to_do(run: Run) -> None:
    """The same role and session in another account is another principal."""
    result = run("list", key="AKIDSTRANGER")
    assert result.exit_code == 1
    assert "arn:aws-cn:iam::999900009999:role/researchers has no role in this deployment" in result.stderr
    assert "ask an operator to add your role" in result.stderr


def test_a_request_with_a_token_is_told_to_sign(run: Run) -> None:
    """API Gateway itself refuses such a request, without a word about why."""
    result = run("--auth", "token", "list")
    assert result.exit_code == 1 and "GPU_RECOVERY_AUTH=iam" in result.stderr


def test_no_credentials_are_printed(run: Run, gateway: Gateway) -> None:
    """Not even when the server repeats them."""
    gateway.change = lambda sent: _with_header(sent, "content-type", "text/plain")
    secret = secret_access_key(SECRET, "AKIDANA")
    for result in (run("list"), run("submit", "-", stdin=YAML)):
        assert not any(word in result.output for word in (SESSION_TOKEN, secret, "a-token-of-another-deployment"))
    assert "[credentials]" in run("submit", "-", stdin=YAML).stderr


@contextmanager
def served(gateway: Gateway) -> Iterator[str]:
    """The gateway behind a port of loopback, for code that has no transport of its own; its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            url = f"http://127.0.0.1:{gateway.port}{self.path}"
            answer = gateway(httpx.Request(self.command, url, headers=list(self.headers.items()), content=content))
            self.send_response(answer.status_code)
            self.end_headers()
            self.wfile.write(answer.content)

        do_GET = do_POST

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    gateway.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{gateway.port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_distributed_lock_signs_its_requests(run: Run, gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank signs with the credentials of its environment; a request that was changed on its way gets no lock."""
    job_id = told(run("submit", "-", "--json", stdin=YAML))["job_id"]
    environment = {
        "JOB_ID": job_id,
        "AWS_ACCESS_KEY_ID": "AKIDANA",
        "AWS_SECRET_ACCESS_KEY": secret_access_key(SECRET, "AKIDANA"),
        "AWS_SESSION_TOKEN": SESSION_TOKEN,
        "AWS_REGION": REGION,
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with served(gateway) as address:
        monkeypatch.setenv("GPU_RECOVERY_API_URL", address)
        with GpuLock("train", distributed=True) as lock:
            assert lock.token == 1 and lock.holder() == "train"
        assert lock.holder() is None
        gateway.change = lambda sent: _with_header(sent, "content-type", "text/plain")
        with pytest.raises(RuntimeError, match="403"):
            GpuLock("train", distributed=True).acquire()
    assert not any("a-token-of-another-deployment" in str(one.headers.raw) for one in gateway.requests)
