"""Serves the acknowledgement protocol of events in a worker. `event_tracker` is its client.

Row 44 of the fault catalogue, docs/diagnosis.md. Row 12: it also answers the heartbeats of a caller.

    def switch(event):                  # runs in a thread, one event after another
        if event.event == "rollout_start":
            with GpuLock("rollout"):    # whatever makes the GPU ready
                engine.load()

    endpoint = diagnosis.worker_endpoint(switch, "10.0.0.7", 8000)

An event is acknowledged once the worker has taken it up, and is ready once `switch` has returned. The endpoint has no
authentication: listen only where the processes of the job can connect.
"""

from __future__ import annotations

import json
import threading
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from .event_tracker import EVENTS, KEPT_MAX, OK
from .reporter import sentence
from .sender import log
from .timings import last_progress

ACK_WAIT_S = 5.0
"""Seconds for which an acknowledgement waits for the end of the switch. The tracker waits 10 s for the answer."""
BODY_BYTES_MAX, NAME_MAX, REQUEST_S = 65_536, 200, 30.0
"""Largest body of a request, largest name in it, and seconds until a silent client is given up."""
BAD_REQUEST, NOT_FOUND, TOO_LARGE, FAILED, OVERLOADED = 400, 404, 413, 500, 503
PROCESSING, BUSY, READY, ERROR, UNKNOWN = "processing", "gpu_busy", "gpu_ready", "error", "unknown"
Response = tuple[int, Mapping[str, Any]]


@dataclass
class ReceivedEvent:
    """An event that the worker has received. `step` is the step of the training, None if the sender gave none."""

    request_id: str
    event: str
    step: int | None = None
    state: str = field(default=PROCESSING, init=False)
    error: str = field(default="", init=False)

    def busy(self) -> None:
        """Tell the sender that another role still occupies the GPU. The switch goes on."""
        self.state = BUSY


class WorkerEndpoint:
    """Answers the requests of trackers and callers. `handle` fits into any HTTP server; `serve` starts its own.

    Args:
        switch: makes the GPU ready for an event, and raises if it cannot. It is called in a thread of the endpoint,
            where an error is also written as the error of any thread.
        ack_wait_s: seconds for which an acknowledgement waits for `switch`.
    """

    def __init__(self, switch: Callable[[ReceivedEvent], None], *, ack_wait_s: float = ACK_WAIT_S) -> None:
        self._switch, self._ack_wait_s = switch, ack_wait_s
        self._events: dict[str, ReceivedEvent] = {}
        self._changed = threading.Condition()
        self._newest: threading.Thread | None = None
        self._server: ThreadingHTTPServer | None = None

    def handle(self, method: str, target: str, body: bytes = b"") -> Response:
        """Answer one request: the HTTP status and the JSON object of the response.

        Args:
            target: the path of the request, with its query.
        """
        try:
            url = urllib.parse.urlsplit(target)
        except ValueError:
            return BAD_REQUEST, {"error": "the path is invalid"}
        path, _, last = url.path.rpartition("/")
        if (method, url.path) == ("POST", "/events"):
            return self._received(body)
        if (method, path) == ("GET", "/event_ack"):
            return self._acknowledged(last)
        if (method, url.path) == ("GET", "/event_status"):
            return self._status(urllib.parse.parse_qs(url.query).get("request_id", [""])[0])
        if (method, url.path) == ("GET", "/heartbeat"):
            return OK, {"progress": last_progress()}
        return NOT_FOUND, {"error": f"there is no {method} {url.path}"}

    def serve(self, host: str = "127.0.0.1", port: int = 0) -> str:
        """Listen at this address in a thread. Return the address for `event_tracker`. Port 0 takes a free port."""
        self._server = ThreadingHTTPServer((host, port), _handler_of(self))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, name="gpu-recovery-endpoint", daemon=True).start()
        return f"http://{host}:{self._server.server_port}"

    def close(self) -> None:
        """End the server."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def _received(self, body: bytes) -> Response:
        if len(body) > BODY_BYTES_MAX:
            return TOO_LARGE, {"error": f"the body has more than {BODY_BYTES_MAX} bytes"}
        try:
            content = json.loads(body)
        except (ValueError, RecursionError):
            content = None
        fields: Mapping[str, Any] = content if isinstance(content, dict) else {}
        name, request_id, step = fields.get("event"), fields.get("request_id"), fields.get("global_step")
        if name not in EVENTS:
            return BAD_REQUEST, {"error": f"Invalid event type: {str(name)[:NAME_MAX]}"}
        if not isinstance(request_id, str) or not 0 < len(request_id) <= NAME_MAX:
            return BAD_REQUEST, {"error": "request_id must be a short text"}
        event = ReceivedEvent(request_id, str(name), step if type(step) is int else None)
        with self._changed:
            if request_id not in self._events:  # a repeated request switches once
                if len(self._events) >= KEPT_MAX:
                    ended = next((name for name, kept in self._events.items() if kept.state in (READY, ERROR)), None)
                    if ended is None:
                        return OVERLOADED, {"error": f"{KEPT_MAX} events wait for their switch"}
                    del self._events[ended]
                self._events[request_id] = event
                self._start(event)
        return OK, {"success": True, "request_id": request_id}

    def _acknowledged(self, request_id: str) -> Response:
        """Answer with the state of the GPU. An event that the worker failed to process is not acknowledged."""
        event = self._events.get(request_id)
        if event is None:
            return NOT_FOUND, {"error": "no such event"}
        with self._changed:
            self._changed.wait_for(lambda: event.state in (READY, ERROR), self._ack_wait_s)
        if event.state == ERROR:
            return FAILED, {"error": event.error}
        return OK, {"gpu_state": event.state.replace("gpu_", "")}

    def _status(self, request_id: str) -> Response:
        event = self._events.get(request_id)
        if event is None:
            return OK, {"state": UNKNOWN}
        return OK, {"state": event.state} | ({"error": event.error} if event.error else {})

    def _start(self, event: ReceivedEvent) -> None:
        """Start a thread that processes the event after the event before it."""
        thread = threading.Thread(
            target=self._process, args=(event, self._newest), name="gpu-recovery-event", daemon=True
        )
        self._newest = thread
        thread.start()

    def _process(self, event: ReceivedEvent, before: threading.Thread | None) -> None:
        if before is not None:
            before.join()
        try:
            self._switch(event)
        except BaseException as error:
            log.error("Event %s failed: GPU switch failed: %s", event.event, error)
            self._end(event, ERROR, sentence(error))
            raise
        self._end(event, READY, "")

    def _end(self, event: ReceivedEvent, state: str, error: str) -> None:
        with self._changed:
            event.error = error
            event.state = state
            self._changed.notify_all()


def _handler_of(endpoint: WorkerEndpoint) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = REQUEST_S

        def do_POST(self) -> None:
            length = self.headers.get("Content-Length", "0")
            size = int(length) if length.isascii() and length.isdigit() else 0
            self._answer(endpoint.handle("POST", self.path, self.rfile.read(min(size, BODY_BYTES_MAX + 1))))

        def do_GET(self) -> None:
            self._answer(endpoint.handle("GET", self.path))

        def _answer(self, answer: Response) -> None:
            status, content = answer
            raw = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *_: Any) -> None:
            return  # the tracker polls every second

    return Handler


def worker_endpoint(
    switch: Callable[[ReceivedEvent], None], host: str = "127.0.0.1", port: int = 0
) -> tuple[WorkerEndpoint, str]:
    """Serve the events of this worker at `host` and `port`. Return the endpoint and its address.

    Args:
        switch: makes the GPU ready for an event, and raises if it cannot.
    """
    endpoint = WorkerEndpoint(switch)
    return endpoint, endpoint.serve(host, port)
