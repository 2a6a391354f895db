"""The worker's side of the events between train and rollout (row 44), spoken to by the tracker of the SDK."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import pytest
from gpu_recovery_client import diagnosis
from gpu_recovery_client.diagnosis import ReceivedEvent, WorkerEndpoint
from gpu_recovery_client.diagnosis.event_tracker import KEPT_MAX, EventTracker
from gpu_recovery_client.diagnosis.worker_endpoint import BODY_BYTES_MAX

from tests.client.training_process import Ear

worker_endpoint = import_module(WorkerEndpoint.__module__)
WITHIN_S = 20.0
WRITTEN = "ignore::pytest.PytestUnhandledThreadExceptionWarning"
"""The error of a switch is also written as the error of its thread, where the log of the worker shows it."""


class Gpu:
    """A GPU that is free when the test says so. `seen` are the events, in the order in which they were acted on."""

    def __init__(self) -> None:
        self.free, self.begun = threading.Event(), threading.Event()
        self.seen: list[tuple[str, int | None]] = []

    def switch(self, event: ReceivedEvent) -> None:
        self.seen.append((event.event, event.step))
        self.begun.set()
        assert self.free.wait(WITHIN_S)


class InProcess:
    """A tracker's transport straight into an endpoint."""

    def __init__(self, endpoint: WorkerEndpoint) -> None:
        self.endpoint = endpoint

    def post(self, path: str, body: Any, timeout_s: float) -> Any:
        return self.endpoint.handle("POST", path, json.dumps(body).encode())

    def get(self, path: str, timeout_s: float) -> Any:
        return self.endpoint.handle("GET", path)


def tracker(endpoint: WorkerEndpoint, sleep: Callable[[float], None] = lambda _: None) -> EventTracker:
    return EventTracker(InProcess(endpoint), "rollout-0", sleep=sleep)


@pytest.fixture
def gpu() -> Iterator[Gpu]:
    made = Gpu()
    yield made
    made.free.set()


def test_an_event_is_acknowledged_when_the_gpu_is_ready(ear: Ear, gpu: Gpu) -> None:
    """The name and the step reach the worker."""
    gpu.free.set()
    found = tracker(WorkerEndpoint(gpu.switch)).send("rollout_start", 7)
    assert (found.state, found.gpu_state, gpu.seen) == ("acknowledged", "ready", [("rollout_start", 7)])


def test_an_event_that_takes_longer_is_acknowledged_while_it_is_processed(ear: Ear, gpu: Gpu) -> None:
    """The worker has it, and says so within the time of the tracker."""
    found = tracker(WorkerEndpoint(gpu.switch, ack_wait_s=0.0)).send("rollout_start")
    assert (found.state, found.gpu_state) == ("acknowledged", "processing")


def test_the_tracker_waits_until_the_gpu_is_ready(ear: Ear) -> None:
    """Busy first: the other role still has it."""
    free, states = threading.Event(), list[str]()

    def switch(event: ReceivedEvent) -> None:
        event.busy()
        assert free.wait(WITHIN_S)

    endpoint = WorkerEndpoint(switch)

    def sleep(_: float) -> None:
        (request_id,) = followed.events
        states.append(str(endpoint.handle("GET", f"/event_status?request_id={request_id}")[1]["state"]))
        if states[-1] == "gpu_busy":
            free.set()
            endpoint.handle("GET", f"/event_ack/{request_id}")  # returns when the switch has ended

    followed = tracker(endpoint, sleep)
    assert followed.send_and_wait("rollout_start").gpu_state == "ready"
    assert "gpu_busy" in states


@pytest.mark.filterwarnings(WRITTEN)
def test_a_switch_that_fails_is_told_and_not_acknowledged(ear: Ear) -> None:
    """With its error; the endpoint goes on with the next event."""
    errors = iter([RuntimeError("no memory"), RuntimeError("no memory")])

    def switch(event: ReceivedEvent) -> None:
        error = next(errors, None)
        if error is not None:
            raise error

    followed = tracker(WorkerEndpoint(switch))
    with pytest.raises(RuntimeError, match=r"^ACK failed$"):
        followed.send("rollout_start")
    with pytest.raises(RuntimeError, match=r"^GPU switch failed: RuntimeError: no memory$"):
        followed.send_and_wait("rollout_start")
    assert followed.send("rollout_end").gpu_state == "ready"
    last = [one for one in ear.reports() if one.state == "failed"][-1]
    assert (last.gpu_state, last.last_state) == ("error", "delivered")


def test_events_are_processed_in_their_order_and_a_repeated_one_once(gpu: Gpu) -> None:
    """A retry of the POST must not load the model twice."""
    endpoint = WorkerEndpoint(gpu.switch)
    for number, event in enumerate(("rollout_start", "rollout_end", "rollout_start")):
        body = {"event": event, "global_step": number, "request_id": f"q-{number}"}
        for _ in range(2):
            assert endpoint.handle("POST", "/events", json.dumps(body).encode())[0] == 200
    assert gpu.begun.wait(WITHIN_S) and gpu.seen == [("rollout_start", 0)]
    gpu.free.set()
    assert endpoint.handle("GET", "/event_ack/q-2") == (200, {"gpu_state": "ready"})
    assert gpu.seen == [("rollout_start", 0), ("rollout_end", 1), ("rollout_start", 2)]


@pytest.mark.parametrize(
    ("method", "target", "body", "status"),
    [
        ("POST", "/events", {"event": "rollout", "request_id": "q"}, 400),
        ("POST", "/events", {"event": "rollout_start"}, 400),
        ("POST", "/events", {"event": "rollout_start", "request_id": "q" * 201}, 400),
        ("POST", "/events", {"event": ["rollout_start"], "request_id": "q"}, 400),
        ("POST", "/events", [], 400),
        ("POST", "/events", "x" * BODY_BYTES_MAX, 413),
        ("GET", "/event_ack/none", None, 404),
        ("GET", "/event_status?request_id=none", None, 200),
        ("GET", "/event_status", None, 200),
        ("GET", "/events", None, 404),
        ("GET", "/", None, 404),
    ],
)
def test_what_is_no_request_of_the_protocol_starts_nothing(
    gpu: Gpu, method: str, target: str, body: Any, status: int
) -> None:
    """Anybody who can connect can send it."""
    found = WorkerEndpoint(gpu.switch).handle(method, target, json.dumps(body).encode())
    assert found[0] == status and gpu.seen == []
    assert status != 200 or found[1] == {"state": "unknown"}


def test_what_is_no_json_is_refused(gpu: Gpu) -> None:
    """The body is bytes of anybody."""
    endpoint = WorkerEndpoint(gpu.switch)
    for body in (b"\xff{", b"[" * 60_000):
        assert endpoint.handle("POST", "/events", body)[0] == 400
    assert endpoint.handle("GET", "//[")[0] == 400


def test_what_an_endpoint_remembers_is_bounded(gpu: Gpu) -> None:
    """A run of a million steps receives two million."""
    gpu.free.set()
    endpoint = WorkerEndpoint(gpu.switch)
    for number in range(KEPT_MAX):
        assert received(endpoint, number) == 200
    assert endpoint.handle("GET", f"/event_ack/q-{KEPT_MAX - 1}")[1] == {"gpu_state": "ready"}
    for number in range(KEPT_MAX, KEPT_MAX + 10):
        assert received(endpoint, number) == 200
    assert endpoint.handle("GET", "/event_ack/q-0")[0] == 404
    assert endpoint.handle("GET", f"/event_ack/q-{KEPT_MAX + 9}")[0] == 200


def received(endpoint: WorkerEndpoint, number: int) -> int:
    """The status of the answer to an event of this number."""
    body = json.dumps({"event": "rollout_end", "request_id": f"q-{number}"}).encode()
    return endpoint.handle("POST", "/events", body)[0]


def test_an_event_that_waits_for_its_switch_is_not_forgotten(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """If it is sent again, it would switch twice. Each one that waits has a thread, so their number is bounded."""
    monkeypatch.setattr(worker_endpoint, "KEPT_MAX", 3)
    endpoint = WorkerEndpoint(gpu.switch)
    assert [received(endpoint, number) for number in (0, 1, 2, 3, 0)] == [200, 200, 200, 503, 200]
    assert sum(one.name == "gpu-recovery-event" for one in threading.enumerate()) == 3
    gpu.free.set()
    assert endpoint.handle("GET", "/event_ack/q-2")[1] == {"gpu_state": "ready"}
    assert received(endpoint, 3) == 200
    assert endpoint.handle("GET", "/event_ack/q-3")[1] == {"gpu_state": "ready"}
    assert len(gpu.seen) == 4


def test_an_endpoint_is_reached_over_http(ear: Ear, gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the tracker; its heartbeat says how far the worker is, and a body without a length is empty."""
    monkeypatch.undo()  # this one speaks to a server of its own, on the loopback
    gpu.free.set()
    endpoint, address = diagnosis.worker_endpoint(gpu.switch)
    try:
        assert diagnosis.event_tracker(address, "rollout-0").send("train_end", 3).gpu_state == "ready"
        diagnosis.progress(17)
        connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=WITHIN_S)
        connection.request("GET", "/heartbeat")
        answer = connection.getresponse()
        assert (answer.status, json.loads(answer.read())) == (200, {"progress": 17.0})
        connection.close()
        connection.putrequest("POST", "/events")
        connection.endheaders()
        assert connection.getresponse().status == 400
        connection.close()
    finally:
        endpoint.close()
        endpoint.close()  # a second time does nothing
