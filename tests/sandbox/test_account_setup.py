"""Setup of the sandbox's account: tokens are issued although the API is slow to start."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from sandbox import account_setup, processes
from sandbox.processes import SandboxError

TOKEN = f"gru_{'0' * 12}_{'A' * 43}"


@contextmanager
def api_whose_first_answers_are(*statuses: int) -> Iterator[tuple[str, list[str]]]:
    """An API that answers reads with these statuses and then well: its URL, and the paths of tokens asked for."""
    waiting, asked = list(statuses), list[str]()

    class Api(BaseHTTPRequestHandler):
        def answer(self, status: int, **body: object) -> None:
            text = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def do_GET(self) -> None:
            status = waiting.pop(0) if waiting else 200
            self.answer(status, instances=[])

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            asked.append(self.path.split("/")[-2])
            self.answer(504 if waiting else 201, token=f"token {len(asked)}", token_id="t")

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Api)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()


def test_tokens_are_issued_once_by_an_api_that_fails_at_first() -> None:
    """The function of a busy machine exceeds its timeout, so its gateway answers 500 or 504 until it has started."""
    with api_whose_first_answers_are(504, 500, 504) as (url, asked):
        issued = account_setup.issue_node_tokens(url, TOKEN, ["i-1", "i-2"])
    assert asked == ["i-1", "i-2"]
    assert issued == {"node_token": "token 1", "node_tokens": {"i-1": "token 1", "i-2": "token 2"}}


def test_an_api_that_never_answers_well_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the deadline, with the same sentence as a refused token."""
    monkeypatch.setattr(processes, "READY_WITHIN_S", 0.2)
    with (
        api_whose_first_answers_are(*[504] * 1000) as (url, asked),
        pytest.raises(SandboxError, match=r"no token for an instance: .*(504|in time)"),
    ):
        account_setup.issue_node_tokens(url, TOKEN, ["i-1"])
    assert asked == []


def test_a_refused_operator_token_ends_the_start_at_once() -> None:
    """A wrong token stays wrong, so nothing is repeated."""
    with (
        api_whose_first_answers_are(403, 500) as (url, asked),
        pytest.raises(SandboxError, match=r"no token for an instance: .*403"),
    ):
        account_setup.issue_node_tokens(url, TOKEN, ["i-1"])
    assert asked == []
