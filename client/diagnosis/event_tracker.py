"""Notices between train and rollout, with what became of each (rows 41-45).

A notice is not done when it was sent: `send` ends when the worker has acknowledged it, `send_and_wait` when the GPU is
ready. Each step is told, so that a notice that was never acknowledged explains the "out of memory" that follows.
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

from gpu_recovery_client.diagnosis.reporter import reporter, sentence
from gpu_recovery_client.diagnosis.sender import log

EVENTS = ("rollout_start", "rollout_end", "train_end")
"""train_end is the one that the original system lacks: nobody there says that the GPU is free."""
SEND_S, ACK_S, STATUS_S, READY_S, POLL_S = 600.0, 10.0, 5.0, 600.0, 1.0
KEPT_MAX = 1_000
OK = 200
Answer = tuple[int, Mapping[str, Any]]


class Transport(Protocol):
    """How the worker is reached: the status of HTTP, and the object that came with it."""

    def post(self, path: str, body: Mapping[str, Any], timeout_s: float) -> Answer: ...

    def get(self, path: str, timeout_s: float) -> Answer: ...


class Http:
    """Over HTTP, at an address such as `http://10.0.0.7:8000`."""

    def __init__(self, address: str) -> None:
        if urllib.parse.urlsplit(address).scheme not in ("http", "https"):
            raise ValueError(f"{address!r} is no address: it begins with http or https")
        self._address = address.rstrip("/")

    def post(self, path: str, body: Mapping[str, Any], timeout_s: float) -> Answer:
        """POST of JSON."""
        headers = {"Content-Type": "application/json"}
        return self._answer(urllib.request.Request(self._address + path, json.dumps(body).encode(), headers), timeout_s)

    def get(self, path: str, timeout_s: float) -> Answer:
        """GET."""
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
        found = json.loads(raw or b"{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


@dataclass
class TrackedEvent:
    """One notice. `last_state`: how far it came, which `state` does not say once it is "failed". Times in seconds."""

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
    """Sends notices to one worker and follows them. `now` and `sleep` are the clock's."""

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
        """Deliver it, and have it acknowledged. What goes wrong is raised, and kept beside how far it had come.

        Raises ValueError for an event that there is not, RuntimeError for an answer that is none, and what the
        transport raises.
        """
        found = self._begin(event)
        found.step = step
        try:
            self._deliver(found)
            status, answer = self._transport.get(f"/event_ack/{found.request_id}", ACK_S)
            if status != OK:
                raise RuntimeError("ACK failed")
            found.gpu_state = str(answer.get("gpu_state", ""))
            self._acknowledged(found)
            log.info("Event %s acknowledged, GPU state: %s", event, found.gpu_state)
        except Exception as error:
            self._failed(found, error)
            raise
        return found

    def send_and_wait(self, event: str, step: int | None = None, timeout_s: float = READY_S) -> TrackedEvent:
        """Deliver it, and ask every second until the GPU is ready. As `send`; TimeoutError when that takes longer."""
        found = self._begin(event)
        found.step = step
        try:
            self._deliver(found)
            self._wait(found, found.send_time + timeout_s)
            self._acknowledged(found)
            log.info("Event %s confirmed, GPU ready", event)
        except Exception as error:
            self._failed(found, error)
            raise
        return found

    def _begin(self, event: str) -> TrackedEvent:
        if event not in EVENTS:
            raise ValueError(f"Invalid event type: {event}")
        found = TrackedEvent(str(uuid.uuid4()), event, None, self._now())
        self.events[found.request_id] = found
        while len(self.events) > KEPT_MAX:
            del self.events[next(iter(self.events))]
        return found

    def _deliver(self, found: TrackedEvent) -> None:
        self._report(found)
        body = {"event": found.event, "global_step": found.step, "request_id": found.request_id}
        status, _ = self._transport.post("/events", body, SEND_S)
        if status != OK:
            raise RuntimeError(f"Event delivery failed: {status}")
        found.state = found.last_state = "delivered"
        found.deliver_time = self._now()
        self._report(found)

    def _wait(self, found: TrackedEvent, deadline: float) -> None:
        path = f"/event_status?request_id={found.request_id}"
        while self._now() < deadline:
            status, answer = self._transport.get(path, STATUS_S)
            state = answer.get("state") if status == OK else None
            if state == "gpu_ready":
                found.gpu_state = "ready"
                return
            if state == "gpu_busy":
                found.gpu_state = "busy"
                log.warning("GPU still busy, waiting...")
            elif state == "error":
                raise RuntimeError(f"GPU switch failed: {answer.get('error')}")
            self._sleep(POLL_S)
        raise TimeoutError(f"Event {found.event} ACK timeout")

    def _acknowledged(self, found: TrackedEvent) -> None:
        found.state = found.last_state = "acknowledged"
        found.ack_time = self._now()
        self._report(found)

    def _failed(self, found: TrackedEvent, error: Exception) -> None:
        found.state, found.error = "failed", sentence(error)
        log.error("Event %s failed: %s", found.event, error)
        self._report(found)

    def _report(self, found: TrackedEvent) -> None:
        reporter().send(
            "event",
            worker=self._worker,
            urgent=True,
            request_id=found.request_id,
            event=found.event,
            state=found.state,
            last_state=found.last_state,
            gpu_state=found.gpu_state,
            step=found.step,
            error=found.error,
        )


def event_tracker(address: str, worker: str = "") -> EventTracker:
    """A tracker of the notices to the worker at `address`, which is called `worker` in the job."""
    return EventTracker(Http(address), worker)
