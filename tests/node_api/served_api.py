"""The node API of the tests behind a port of the loopback, for agents that are processes of their own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.lambdas.conftest import Functions


@contextmanager
def served(functions: Functions) -> Iterator[str]:
    """The address of the API, as long as the context. One request is handled at a time, as one function handles it."""
    one_at_a_time = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            event = {
                "version": "2.0",
                "rawPath": self.path,
                "headers": dict(self.headers),
                "isBase64Encoded": False,
                "body": self.rfile.read(int(self.headers["Content-Length"])).decode(),
                "requestContext": {"http": {"method": "POST", "path": self.path}, "stage": "$default"},
            }
            with one_at_a_time:
                answer = functions.call("node_api", event)
            body = answer["body"].encode()
            self.send_response(answer["statusCode"])
            for name, value in {**answer["headers"], "content-length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
