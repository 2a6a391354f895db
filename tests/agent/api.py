"""A node API on the loopback whose answers are written down beforehand, and what was said to it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

WITHIN_S = 60.0


@dataclass(frozen=True)
class Said:
    """One answer. `hold` is waited for before it is given: a server that takes too long."""

    status: int = 200
    body: dict[str, Any] | bytes = field(default_factory=lambda: {"ok": True, "ts": 1, "next_s": 1})
    headers: dict[str, str] = field(default_factory=dict)
    hold: threading.Event | None = None


@dataclass(frozen=True)
class Heard:
    """One request."""

    path: str
    headers: dict[str, str]
    raw: bytes

    @property
    def report(self) -> dict[str, Any]:
        return json.loads(self.raw or b"{}")


def ok(next_s: float = 1, ts: int = 1, **more: Any) -> Said:
    """What a server says that has heard: the next report in a second, which is the least."""
    return Said(body={"ok": True, "ts": ts, "next_s": next_s, **more})


def refusal(status: int, error: str, headers: dict[str, str] | None = None, **more: Any) -> Said:
    """What a server says that has not."""
    return Said(status, {"ok": False, "error": error, **more}, headers or {})


class Api:
    """Gives the answers of `script` in order, then `lasting` for ever."""

    def __init__(self) -> None:
        self.script: list[Said] = []
        self.lasting = ok()
        self.heard: list[Heard] = []
        self._changed = threading.Condition()
        self.url = ""

    def answer(self, heard: Heard) -> Said:
        with self._changed:
            self.heard.append(heard)
            said = self.script.pop(0) if self.script else self.lasting
            self._changed.notify_all()
        return said

    def until(self, condition: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
        """Waits until the reports meet a condition; AssertionError with the last ones if they never do."""
        with self._changed:
            met = self._changed.wait_for(lambda: condition([one.report for one in self.heard]), WITHIN_S)
            reports = [one.report for one in self.heard]
        assert met, f"{len(reports)} reports, the last of them {reports[-3:]}"
        return reports

    def count(self, number: int) -> list[dict[str, Any]]:
        """Waits for that many reports."""
        return self.until(lambda reports: len(reports) >= number)

    def next(self, condition: Callable[[dict[str, Any]], bool], since: int | None = None) -> dict[str, Any]:
        """Waits for a report that meets a condition: of those after the first `since`, or of those after this call."""
        begin = len(self.heard) if since is None else since
        reports = self.until(lambda reports: any(condition(one) for one in reports[begin:]))
        return next(one for one in reports[begin:] if condition(one))


@contextmanager
def serving(api: Api, port: int = 0) -> Iterator[Api]:
    """The API on a port of the loopback, as long as the context."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            said = api.answer(Heard(self.path, dict(self.headers), raw))
            if said.hold is not None:
                said.hold.wait(WITHIN_S)
            body = said.body if isinstance(said.body, bytes) else json.dumps(said.body).encode()
            try:
                self.send_response(said.status)
                for name, value in {**said.headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)
            except (BrokenPipeError, ConnectionResetError):
                return  # it did not wait for us

        def do_GET(self) -> None:
            self.do_POST()  # whoever follows a redirect comes with another method

        def log_message(self, *_: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    api.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield api
    finally:
        server.shutdown()
        server.server_close()
