"""Sends events between the train and the rollout phase of a training, and tracks the delivery of each event.

Rows 41-45 of the fault catalogue, docs/diagnosis.md.

An event is not done when it was sent. `send` returns when the worker has acknowledged it, `send_and_wait` when the GPU
is ready. Each step is reported, so that an event without acknowledgement explains the "out of memory" that follows.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from .reporter import reporter, sentence
from .sender import log

EVENTS = ("rollout_start", "rollout_end", "train_end")
"""The kinds of events. The original system lacks train_end: there no event says that the GPU is free."""
SEND_S, ACK_S, STATUS_S, READY_S, POLL_S = 600.0, 10.0, 5.0, 600.0, 1.0
"""Timeouts in seconds of sending, acknowledgement, status and readiness, and seconds between two polls."""
KEPT_MAX = 1_000
"""Largest number of tracked events; the oldest are dropped first."""
OK = 200
Answer = tuple[int, Mapping[str, Any]]


class Transport(Protocol):
    """A way to reach the worker. Both methods return the HTTP status and the JSON object of the response."""

    def post(self, path: str, body: Mapping[str, Any], timeout_s: float) -> Answer:
        """Send `body` as JSON with POST."""

    def get(self, path: str, timeout_s: float) -> Answer:
        """Send a GET request."""


class Http:
    """HTTP to an address such as `http://10.0.0.7:8000`."""

    def __init__(self, address: str) -> None:
        if urllib.parse.urlsplit(address).scheme not in ("http", "https"):
            raise ValueError(f"{address!r} is not an address: an address begins with http or https")
        self._address = address.rstrip("/")

    def post(self, path: str, body: Mapping[str, Any], timeout_s: float) -> Answer:
        """Send `body` as JSON with POST."""
        headers = {"Content-Type": "application/json"}
        return self._answer(urllib.request.Request(self._address + path, json.dumps(body).encode(), headers), timeout_s)

    def get(self, path: str, timeout_s: float) -> Answer:
        """Send a GET request."""
        return self._answer(urllib.request.Request(self._address + path), timeout_s)

    def _answer(self, request: urllib.request.Request, timeout_s: float) -> Answer:
        try:
            with urllib.request.urlopen(request, timeout=timeout_s) as answer:
                return answer.status, _object(answer.read(65_536))
        except urllib.error.HTTPError as error:
            with error:
                return error.code, {}


def _object(raw: bytes) -> Mapping[str, Any]:
    try:
        content = json.loads(raw or b"{}")
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


@dataclass
class TrackedEvent:
    """One event. `last_state` is how far it came, which `state` does not say once it is "failed". Times in seconds."""

    request_id: str
    event: str
    step: int | None
    send_time: float
    state: str = "sent"
    last_state: str = "sent"
    deliver_time: float | None = None
    ack_time: float | None = None
    gpu_state: str = ""
    error: str = ""


class EventTracker:
    """Sends events to one worker and tracks them. `now` and `sleep` belong to the clock."""

    def __init__(
        self,
        transport: Transport,
        worker: str = "",
        *,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._transport, self._worker, self._now, self._sleep = transport, worker, now, sleep
        self.events: dict[str, TrackedEvent] = {}

    def send(self, event: str, step: int | None = None) -> TrackedEvent:
        """Deliver an event and wait for its acknowledgement. An error is raised and also stored with the event.

        Raises:
            ValueError: there is no such event.
            RuntimeError: the worker did not accept or acknowledge the event.
            Exception: any error of the transport.
        """
        tracked = self._begin(event)
        tracked.step = step
        try:
            self._deliver(tracked)
            status, answer = self._transport.get(f"/event_ack/{tracked.request_id}", ACK_S)
            if status != OK:
                raise RuntimeError("ACK failed")
            tracked.gpu_state = str(answer.get("gpu_state", ""))
            self._acknowledged(tracked)
            log.info("Event %s acknowledged, GPU state: %s", event, tracked.gpu_state)
        except Exception as error:
            self._failed(tracked, error)
            raise
        return tracked

    def send_and_wait(self, event: str, step: int | None = None, timeout_s: float = READY_S) -> TrackedEvent:
        """Deliver an event and poll every second until the GPU is ready.

        Raises:
            TimeoutError: the GPU was not ready within `timeout_s`.
            RuntimeError: the worker did not accept the event, or its GPU switch failed.
            ValueError: there is no such event.
            Exception: any error of the transport.
        """
        tracked = self._begin(event)
        tracked.step = step
        try:
            self._deliver(tracked)
            self._wait(tracked, tracked.send_time + timeout_s)
            self._acknowledged(tracked)
            log.info("Event %s confirmed, GPU ready", event)
        except Exception as error:
            self._failed(tracked, error)
            raise
        return tracked

    def _begin(self, event: str) -> TrackedEvent:
        if event not in EVENTS:
            raise ValueError(f"Invalid event type: {event}")
        tracked = TrackedEvent(str(uuid.uuid4()), event, None, self._now())
        self.events[tracked.request_id] = tracked
        while len(self.events) > KEPT_MAX:
            del self.events[next(iter(self.events))]
        return tracked

    def _deliver(self, tracked: TrackedEvent) -> None:
        self._report(tracked)
        body = {"event": tracked.event, "global_step": tracked.step, "request_id": tracked.request_id}
        status, _ = self._transport.post("/events", body, SEND_S)
        if status != OK:
            raise RuntimeError(f"Event delivery failed: {status}")
        tracked.state = tracked.last_state = "delivered"
        tracked.deliver_time = self._now()
        self._report(tracked)

    def _wait(self, tracked: TrackedEvent, deadline: float) -> None:
        path = f"/event_status?request_id={tracked.request_id}"
        while self._now() < deadline:
            status, answer = self._transport.get(path, STATUS_S)
            state = answer.get("state") if status == OK else None
            if state == "gpu_ready":
                tracked.gpu_state = "ready"
                return
            if state == "gpu_busy":
                tracked.gpu_state = "busy"
                log.warning("GPU still busy, waiting...")
            elif state == "error":
                tracked.gpu_state = "error"
                raise RuntimeError(f"GPU switch failed: {answer.get('error')}")
            self._sleep(POLL_S)
        raise TimeoutError(f"Event {tracked.event} ACK timeout")

    def _acknowledged(self, tracked: TrackedEvent) -> None:
        tracked.state = tracked.last_state = "acknowledged"
        tracked.ack_time = self._now()
        self._report(tracked)

    def _failed(self, tracked: TrackedEvent, error: Exception) -> None:
        tracked.state, tracked.error = "failed", sentence(error)
        log.error("Event %s failed: %s", tracked.event, error)
        self._report(tracked)

    def _report(self, tracked: TrackedEvent) -> None:
        reporter().send(
            "event",
            worker=self._worker,
            urgent=True,
            request_id=tracked.request_id,
            event=tracked.event,
            state=tracked.state,
            last_state=tracked.last_state,
            gpu_state=tracked.gpu_state,
            step=tracked.step,
            error=tracked.error,
        )


def event_tracker(address: str, worker: str = "") -> EventTracker:
    """Return a tracker of the events to the worker at `address`. Its name in the job is `worker`."""
    return EventTracker(Http(address), worker)
