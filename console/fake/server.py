"""HTTP server on loopback with the built console and the polled routes of a fake deployment. Standard library only.

It compresses, and answers with entity tags and 304, as the job API does. `requests` counts what a page asks for.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import json
import sys
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from gpu_recovery.wire.json_body import time_text

from console.fake.model import Deployment, Size

SERVED = Path(__file__).parents[1] / "served" / "served.py"
COMPRESS_FROM_BYTES = 1_024


def _served() -> Any:
    """Return the module of the function that serves the console's files: it is no package."""
    spec = importlib.util.spec_from_file_location("served_by_fake", SERVED)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # a dataclass looks its module up
    spec.loader.exec_module(module)
    return module


def _utc_now() -> datetime:
    return datetime.now(UTC)


class FakeServer(ThreadingHTTPServer):
    """The server. `requests` counts the requests by method and path. `lock` is held by whoever uses `deployment`."""

    daemon_threads = True

    def __init__(
        self, size: Size, port: int = 0, static: Path | None = None, clock: Callable[[], datetime] = _utc_now
    ) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.clock = clock
        self.deployment = Deployment(size, clock())
        self.requests: Counter[str] = Counter()
        self.lock = Lock()
        self._static = static

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a browser that has closed its connection, and report every other error."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)

    @property
    def url(self) -> str:
        """Address of the console."""
        return f"http://127.0.0.1:{self.server_address[1]}/console"

    @cached_property
    def served(self) -> Any:
        """The module that serves the console's files."""
        module = _served()
        if self._static is not None:
            module.FILES = module.load(self._static)
        return module

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any) -> tuple[int, Any]:
        """Return status and body of a request to the API."""
        with self.lock:
            model = self.deployment
            model.advance(self.clock())
            if method == "GET" and path.startswith("/api/v2/instances/"):
                found = model.instance(unquote(path.removeprefix("/api/v2/instances/")))
                return (
                    (200, found)
                    if found is not None
                    else _problem(404, "no_such_instance", "there is no such instance")
                )
            routes: dict[str, Callable[[], Any]] = {
                "GET /api/v2/overview": model.overview,
                "GET /api/v2/fleet/map": lambda: model.map(query.get("gpu") == "1"),
                "GET /api/v2/fleet/members": model.members,
                "GET /api/v2/fleet/limits": model.limits,
                "GET /api/v2/events": lambda: model.feed(query.get("after"), int(query.get("limit", "50"))),
                "GET /api/v2/jobs": lambda: model.page_of_jobs(query),
                "GET /api/v2/me": self._me,
                "GET /api/v2/dead-letters": lambda: {"queues": []},
                "POST /api/v2/fleet/pause": lambda: self._paused(body["because"]),
                "POST /api/v2/fleet/unpause": lambda: self._paused(None),
            }
            if f"{method} {path}" == "POST /api/v2/sessions":
                return 201, self._session(body.get("role", "operator"))
            route = routes.get(f"{method} {path}")
            return (200, route()) if route is not None else _problem(404, "no_such_thing", f"there is no {path}")

    def _session(self, role: str) -> dict[str, Any]:
        ends = self.clock() + timedelta(hours=12)
        return {"session": "grs_fake", "user": "fake operator", "role": role, "expires_at": time_text(ends)}

    def _me(self) -> dict[str, Any]:
        deployment = {
            "cluster": "fake",
            "region": "us-east-1",
            "preset": "adaptive",
            "adopt": "off",
            "observe_only": False,
            "replace": False,
        }
        return {**self._session("operator"), "is_session": True, "deployment": deployment}

    def _paused(self, because: str | None) -> dict[str, Any]:
        self.deployment.pause(because)
        return self.deployment.limits()["limits"]  # type: ignore[no-any-return]


def _problem(status: int, code: str, detail: str) -> tuple[int, Any]:
    return status, {"type": "about:blank", "title": code, "status": status, "detail": detail, "code": code}


class _Handler(BaseHTTPRequestHandler):
    """Answers one connection."""

    protocol_version = "HTTP/1.1"
    server: FakeServer

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""

    def date_time_string(self, timestamp: float | None = None) -> str:
        """Return the header `Date` of an answer, in the time of the deployment."""
        return super().date_time_string(self.server.clock().timestamp() if timestamp is None else timestamp)

    def do_GET(self) -> None:
        """Answer with a file of the console or a document."""
        parts = urlsplit(self.path)
        self.server.requests[f"GET {parts.path}"] += 1
        if parts.path in ("/", "/console") or parts.path.startswith("/console/"):
            self._file(parts.path)
        else:
            self._api("GET", parts.path, dict(parse_qsl(parts.query)), {})

    def do_POST(self) -> None:
        """Carry out an order."""
        parts = urlsplit(self.path)
        self.server.requests[f"POST {parts.path}"] += 1
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self._api("POST", parts.path, dict(parse_qsl(parts.query)), json.loads(raw or b"{}"))

    def _file(self, path: str) -> None:
        named = {"pathParameters": {"proxy": path.removeprefix("/console/")}} if path.startswith("/console/") else {}
        answer = self.server.served.handler({"headers": dict(self.headers.items()), **named}, None)
        self._send(answer["statusCode"], answer["headers"], b64decode(answer["body"]))

    def _api(self, method: str, path: str, query: dict[str, str], body: Any) -> None:
        status, document = self.server.answer(method, path, query, body)
        text = json.dumps(document).encode()
        headers = {"Content-Type": "application/json", "Cache-Control": "no-store"}
        if method == "GET" and status == 200:
            headers["ETag"] = tag = f'W/"{hashlib.sha256(text).hexdigest()[:32]}"'
            if self.headers.get("If-None-Match") == tag:
                self._send(304, headers, b"")
                return
        if len(text) >= COMPRESS_FROM_BYTES:
            headers["Content-Encoding"] = "gzip"
            text = gzip.compress(text, 5)
        self._send(status, headers, text)

    def _send(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def running(
    size: Size, port: int = 0, static: Path | None = None, clock: Callable[[], datetime] = _utc_now
) -> Iterator[FakeServer]:
    """Run the server in a thread for the duration of the block.

    Args:
        size: numbers of the deployment.
        port: port on loopback; 0 for any.
        static: folder of the built console; None for the committed one.
        clock: returns the time of the deployment.
    """
    server = FakeServer(size, port, static, clock)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
